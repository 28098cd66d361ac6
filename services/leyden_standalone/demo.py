"""`leyden demo`: the calculator agent learns to use its calculator, on this machine, in minutes."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from leyden_agents.calculator import recipe, tasks
from leyden_client.client import LeydenClient
from leyden_client.errors import ClientError
from leyden_client.evaluate import EvalResult
from leyden_client.training import TrainResult, result_table, train
from leyden_contracts import TaskInput
from leyden_standalone.curve import Interval, draw_curve
from leyden_standalone.deployment import InUse, Options
from leyden_standalone.model import default_model
from leyden_standalone.running import running_beside
from leyden_standalone.supervisor import StartFailed

_STARTS_BELOW = 0.6
_ENDS_ABOVE = 0.9


def command(
    seed: Annotated[
        int, typer.Option(min=0, help="Decides the tasks, the sampling order and the adapter's start.")
    ] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Default: .leyden/demo-SEED.")] = None,
    picture: Annotated[Path, typer.Option(help="Where to write the learning curve.")] = Path("demo-curve.png"),
) -> None:
    """Train the calculator agent on embedded parts, and show that it learned."""
    console = Console()
    folder, name = default_model(None, None)
    data_dir = data_dir or Path(".leyden") / f"demo-{seed}"
    options = Options(data_dir=data_dir, model=folder, model_name=name, call_log=data_dir / "engine-calls.jsonl")
    started = time.monotonic()
    try:
        console.print("starting the services ...")
        with running_beside(options) as (deployment, _):
            with LeydenClient(deployment.url("task_api"), deployment.token, patience_s=60) as client:
                result = _train(client, seed, data_dir, console)
            console.print("stopping the services ...")
    except InUse as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(2) from error
    except (StartFailed, ClientError) as error:
        console.print(f"[red]{error}[/]\nThe services' logs are in {data_dir / 'logs'}.")
        raise typer.Exit(1) from error
    console.print(f"{time.monotonic() - started:.0f} s in all")
    _report(result, picture, console)


def _train(client: LeydenClient, seed: int, data_dir: Path, console: Console) -> TrainResult:
    held_out = tasks.eval_tasks(recipe.EVAL_TASKS, seed) + tasks.long_eval_tasks(recipe.LONG_EVAL_TASKS, seed)
    return train(
        client,
        recipe.demo_run_spec(seed),
        _inputs(tasks.train_tasks(recipe.TRAIN_TASKS, seed)),
        recipe.STEPS,
        eval_tasks=_inputs(held_out),
        folder=data_dir / "trained",
        console=console,
    )


def _inputs(rows: list[dict[str, Any]]) -> list[TaskInput]:
    return [TaskInput.model_validate(row) for row in rows]


def _report(result: TrainResult, picture: Path, console: Console) -> None:
    """Draw the curve, print the table, and exit with code 1 and the reason if the agent did not learn."""
    before, after = result.before, result.after
    if before is None or after is None:
        raise typer.Exit(1)
    console.print(result_table([before, after]))
    lengths = ("short", "long")
    evals = {
        f"held-out, {length}": {one.version: _interval(one, length) for one in (before, after)} for length in lengths
    }
    draw_curve(picture, f"calculator agent, {result.run}", result.final.rewards, evals)
    console.print(f"learning curve: {picture}; adapter: {result.adapter}")
    first, last = evals["held-out, short"][before.version], evals["held-out, short"][after.version]
    if reason := _did_not_learn(first, last):
        console.print(f"[red]It did not learn: {reason}[/]")
        raise typer.Exit(1)
    console.print(f"[green]It learned: held-out success {first}  ->  {last}[/]")


def _interval(result: EvalResult, length: str) -> Interval:
    mean, n = result.by_tag.get(f"length={length}", (0.0, 0))
    return Interval.of(mean, n)


def _did_not_learn(first: Interval, last: Interval) -> str | None:
    if first.n == 0 or last.n == 0:
        return "no held-out episode was graded; see `leyden episodes`"
    if first.mean > _STARTS_BELOW:
        return f"it began at {first.mean:.2f}, above {_STARTS_BELOW}: there was too little to learn"
    if last.mean < _ENDS_ABOVE:
        return f"held-out success went from {first.mean:.2f} to {last.mean:.2f}, below {_ENDS_ABOVE}"
    return None
