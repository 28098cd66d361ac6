"""`leyden check`, `leyden recover`, `leyden token`: for those who run Leyden. They need Redis, the store or the key."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer

from leyden_client.cli.session import Run, session
from leyden_client.connection import Connection
from leyden_client.errors import ClientError, InputError
from leyden_ledger import Ledger
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import ObjectStore, StoreError, open_store

_DAY_S = 86_400
MintedScope = Literal["api", "use"]
"""The other scopes are minted by Leyden itself."""


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("check")(check)
    app.command("recover")(recover)
    app.command("token")(token)


def check(context: typer.Context, run: Run) -> None:
    """Test what always holds (I1 to I6) over a run's ledger and objects; exit 1 if something does not."""

    async def look(ledger: Ledger, store: ObjectStore) -> list[str]:
        from leyden_ledger.check import check_run

        return [str(violation) for violation in await check_run(ledger, store, run)]

    found = asyncio.run(_with_ledger(session(context).connection, "check", look))
    for line in found:
        typer.echo(line)
    if found:
        raise typer.Exit(1)
    typer.echo(f"run {run}: no violation")


def recover(context: typer.Context) -> None:
    """Rebuild what Redis has lost from the object store: unfinished episodes run again. What Redis has stays."""
    found = asyncio.run(_with_ledger(session(context).connection, "recover", _recover))
    for line in found:
        typer.echo(line)
    if not found:
        typer.echo("Redis has every run of the object store: nothing to recover")


def token(
    days: Annotated[float, typer.Option(min=0.001, help="Until it expires")] = 30,
    run: Annotated[str | None, typer.Option(help="Good for this run only")] = None,
    scope: Annotated[MintedScope, typer.Option(help="api: use the task API; use: call promoted versions")] = "api",
    tenant: Annotated[str, typer.Option(help="Good for this tenant's runs; `*` for all tenants'")] = "default",
) -> None:
    """Make a token for the task API, or for calls of promoted versions, signed with LEYDEN_SIGNING_KEY."""
    try:
        tokens = Tokens(os.environ.get("LEYDEN_SIGNING_KEY", ""))
    except ValueError as error:
        raise InputError(str(error)) from error
    typer.echo(tokens.mint(Scope(scope), days * _DAY_S, tenant=tenant, run=run))


async def _recover(ledger: Ledger, store: ObjectStore) -> list[str]:
    from leyden_ledger.recovery import recover

    return [
        f"{one.run}: {one.uploads} uploads, {one.succeeded} succeeded episodes, {one.versions} policy versions"
        for one in await recover(ledger, store)
    ]


async def _with_ledger(
    connection: Connection, what: str, use: Callable[[Ledger, ObjectStore], Awaitable[list[str]]]
) -> list[str]:
    from redis import RedisError

    from leyden_ledger.errors import RunNotFound

    if not (connection.redis_url and connection.store_url):
        raise InputError("set LEYDEN_REDIS_URL and LEYDEN_STORE_URL, or run this where `leyden up` keeps its files")
    ledger = Ledger.connect(connection.redis_url)
    try:
        keys = (os.environ.get(f"LEYDEN_S3_{name}_KEY") for name in ("ACCESS", "SECRET"))
        return await use(ledger, await asyncio.to_thread(open_store, connection.store_url, *keys))
    except RunNotFound as error:
        raise InputError(str(error)) from error
    except (RedisError, StoreError) as error:
        raise ClientError(f"cannot {what}: {error}") from error
    finally:
        await ledger.aclose()
