"""`leyden up`: everything on this machine, until Ctrl-C. The next `leyden up` goes on where this one stopped."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from leyden_runtime.shutdown import stop_event
from leyden_standalone.deployment import InUse, Options
from leyden_standalone.model import default_model
from leyden_standalone.running import running
from leyden_standalone.supervisor import StartFailed


def command(
    data_dir: Annotated[Path, typer.Option(help="Keeps everything: tasks, trajectories, adapters, keys.")] = Path(
        ".leyden"
    ),
    model: Annotated[
        Path | None, typer.Option(help="Folder of the base model. Default: the demo's tiny Llama.")
    ] = None,
    model_name: Annotated[
        str | None, typer.Option(help="Its name in run specifications. Default: the folder's.")
    ] = None,
    redis_url: Annotated[str | None, typer.Option(envvar="LEYDEN_REDIS_URL", help="Default: embedded Valkey.")] = None,
    store_url: Annotated[str | None, typer.Option(envvar="LEYDEN_STORE_URL", help="Default: a local folder.")] = None,
    replica_url: Annotated[
        str | None, typer.Option(envvar="LEYDEN_REPLICA_URL", help="Default: embedded engine.")
    ] = None,
    engine_api_key: Annotated[str | None, typer.Option(envvar="LEYDEN_ENGINE_API_KEY", help="Of that replica.")] = None,
    agent_path: Annotated[Path, typer.Option(help="Where module:function references are looked up.")] = Path(),
    port: Annotated[int | None, typer.Option(help="Of the task API. Default: a free one.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes at a time.")] = 32,
) -> None:
    """Run all of Leyden on this machine."""
    folder, name = default_model(model, model_name)
    options = Options(
        data_dir=data_dir,
        model=folder,
        model_name=name,
        redis_url=redis_url,
        store_url=store_url,
        replica_url=replica_url,
        engine_api_key=engine_api_key,
        agent_path=agent_path,
        api_port=port,
        worker_concurrency=concurrency,
    )
    try:
        asyncio.run(_up(options))
    except InUse as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(2) from error
    except StartFailed as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from error


async def _up(options: Options) -> None:
    stop = stop_event()
    typer.echo("starting ...")
    async with running(options) as (deployment, _):
        typer.echo(f"Leyden is up: {deployment.url('task_api')}/docs")
        typer.echo(f"base model `{options.model_name}`; data, logs and connection.json in {options.data_dir}")
        typer.echo("Ctrl-C stops it; the next `leyden up` goes on where this one stopped.")
        await stop.wait()
        typer.echo("stopping ...")
