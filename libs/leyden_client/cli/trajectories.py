"""`leyden trajectories`, `leyden regrade`: what a run has recorded is listed, exported and scored again."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from leyden_client.cli.session import AsJson, Run, print_json, session
from leyden_client.errors import InputError
from leyden_client.export import write_folder, write_whole
from leyden_client.regrade import regrade as score_again
from leyden_contracts import Purpose, Verdict
from leyden_contracts.rewards import GRADED

_trajectories = typer.Typer(no_args_is_help=True, help="List, show and export stored trajectories.")
_SHOWN = 20

PurposeOption = Annotated[Purpose | None, typer.Option(help="Only those for training, or for evaluation")]
VerdictOption = Annotated[Verdict | None, typer.Option(help="Only those with this verdict")]
Rewards = Annotated[str, typer.Option(help="Reward version of `leyden regrade`; 0: what grading made at the time")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(_trajectories, name="trajectories")
    app.command("regrade")(regrade)


@_trajectories.command("ls")
def ls(
    context: typer.Context,
    run: Run,
    purpose: PurposeOption = None,
    verdict: VerdictOption = None,
    group: Annotated[str | None, typer.Option(help="Only those of this group")] = None,
    rewards: Rewards = GRADED,
    as_json: AsJson = False,
) -> None:
    """List a run's stored trajectories."""
    here = session(context)
    with here.client() as client:
        heads = list(client.trajectories(run, purpose=purpose, verdict=verdict, group=group, rewards=rewards))
    if as_json:
        return print_json([head.model_dump(mode="json") for head in heads])
    table = Table("episode", "purpose", "attempt", "verdict", "reward", "calls", "tokens", "steps", "texts")
    for head in heads:
        reward = "" if head.reward is None else f"{head.reward:.3f}"
        counts = map(str, (head.calls, head.tokens, head.steps, head.texts))
        table.add_row(head.episode, head.purpose, str(head.attempt), head.verdict, reward, *counts)
    here.console.print(table)
    return None


@_trajectories.command("show")
def show(context: typer.Context, run: Run, episode: Annotated[str, typer.Argument()]) -> None:
    """Print an episode's trajectory as JSON: token ids, logprobs, reward, steps, signals."""
    with session(context).client() as client:
        print_json(client.trajectory(run, episode).model_dump(mode="json"))


@_trajectories.command("export")
def export(
    context: typer.Context,
    run: Run,
    path: Annotated[Path, typer.Argument(help="File to write; a folder for --format datasets")],
    format: Annotated[
        Literal["jsonl", "parquet", "datasets"], typer.Option(help="A line a trajectory; or a row a call")
    ] = "jsonl",
    purpose: PurposeOption = None,
    verdict: VerdictOption = None,
    min_reward: Annotated[float | None, typer.Option(help="Only those with at least this reward")] = None,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Only text-only ones, as conversations for supervised fine-tuning")
    ] = False,
    rewards: Rewards = GRADED,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there")] = False,
) -> None:
    """Write stored trajectories into a file; the same trajectories make the same bytes."""
    write = write_folder if format == "datasets" else write_whole
    with session(context).client() as client:
        fetch = partial(
            client.export,
            run,
            format=format,
            purpose=purpose,
            verdict=verdict,
            min_reward=min_reward,
            text_only=text_only,
            rewards=rewards,
        )
        try:
            write(path, fetch, force=force)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error}") from error
    typer.echo(path)


def regrade(
    context: typer.Context,
    run: Run,
    grader: Annotated[str, typer.Option(help="`module:function`, from this folder or PYTHONPATH")],
    name: Annotated[str | None, typer.Option(help="Of the new reward version; default: the next number")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one output")] = 60,
    as_json: AsJson = False,
) -> None:
    """Score a run's stored trajectories again, as a new reward version. The trajectories do not change."""
    with session(context).client() as client:
        version, failed = score_again(client, run, grader, name=name, timeout_s=timeout)
    if as_json:
        return print_json(version.model_dump(mode="json") | {"failed": failed})
    mean = f", mean {version.mean:.3f}" if version.mean is not None else ""
    typer.echo(f"run {run}: reward version {version.version}: {version.scored} episodes{mean}")
    for episode, why in list(failed.items())[:_SHOWN]:
        typer.echo(f"  {episode} has no reward: {why.strip().splitlines()[-1]}", err=True)
    if len(failed) > _SHOWN:
        typer.echo(f"  and {len(failed) - _SHOWN} more: see --json", err=True)
    return None
