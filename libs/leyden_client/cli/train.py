"""`leyden train`: one command from an agent, a grader and tasks to a better adapter."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from leyden_client.cli.session import Session, session
from leyden_client.client import LeydenClient
from leyden_client.errors import InputError
from leyden_client.files import check_start, read_tasks
from leyden_client.training import TrainResult, result_table, train
from leyden_contracts import RunSpec
from leyden_contracts.reading import fault_lines


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("train")(train_command)


def train_command(
    context: typer.Context,
    agent: Annotated[str, typer.Option(help="module:function, called with a task's input", show_default=False)],
    grader: Annotated[str, typer.Option(help="module:function, called with (task, output)", show_default=False)],
    tasks: Annotated[Path, typer.Option(help="Tasks to train on, one JSON object a line", show_default=False)],
    evaluate: Annotated[Path | None, typer.Option("--eval", help="Held-out tasks, for before and after")] = None,
    eval_samples: Annotated[int, typer.Option(min=1, help="Episodes for each held-out task")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Policy versions to make")] = 20,
    group_size: Annotated[int, typer.Option(min=2, help="Episodes of a task that are compared")] = 8,
    groups_per_step: Annotated[int, typer.Option(min=1, help="Tasks in one step")] = 8,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate")] = 1e-4,
    base_model: Annotated[str | None, typer.Option(help="Default: the one that is being served")] = None,
    start: Annotated[Path | None, typer.Option(help="Conversations to learn from first, JSON lines")] = None,
    start_kind: Annotated[Literal["sft", "dpo"], typer.Option(help="dpo: the lines of --start are pairs")] = "sft",
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply of a call")] = 512,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    folder: Annotated[Path, typer.Option(help="The last adapter goes to FOLDER/RUN")] = Path("leyden-adapters"),
) -> None:
    """Train an agent: evaluate, train, evaluate again, download the adapter."""
    here = session(context)
    chosen, held_out = read_tasks(tasks), read_tasks(evaluate) if evaluate else []
    with here.client() as client:
        spec = _spec(
            base_model=base_model or _served(client),
            agent=agent,
            grader=grader,
            group_size=group_size,
            sampling={"max_tokens": max_tokens},
            algorithm={"learning_rate": lr, "groups_per_step": groups_per_step},
            seed=seed,
            start={"kind": start_kind} if start else None,
        )
        if start:
            check_start(spec, start)
        result = train(
            client,
            spec,
            chosen,
            steps,
            eval_tasks=held_out,
            eval_samples=eval_samples,
            start=start,
            folder=folder,
            console=here.console,
        )
    _show(here, result)


def _spec(**parts: Any) -> RunSpec:
    try:
        return RunSpec.model_validate(parts)
    except ValidationError as error:
        raise InputError("these options make no run", fault_lines(error.errors(include_url=False))) from error


def _served(client: LeydenClient) -> str:
    served = sorted({str(replica["base_model"]) for replica in client.replicas()})
    if len(served) != 1:
        known = f"these are served: {', '.join(served)}" if served else "no replica is live"
        raise InputError(f"name the model with --base-model; {known}")
    return served[0]


def _show(here: Session, result: TrainResult) -> None:
    if result.before and result.after:
        here.console.print(result_table([result.before, result.after]))
    if result.adapter:
        here.console.print(f"version {result.version} is in {result.adapter}/")
    else:
        here.console.print("no policy version was published: see `leyden run show` and the learner's log")
        raise typer.Exit(1)
