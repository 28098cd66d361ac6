"""`python -m leyden_gateway`."""

import gc
import sys

import structlog
import uvloop

from leyden_gateway.server import serve
from leyden_gateway.settings import GatewaySettings
from leyden_runtime.logs import configure_logs
from leyden_runtime.open_files import allow_open_files
from leyden_runtime.settings import load_settings
from leyden_runtime.shutdown import stop_event
from leyden_runtime.tokens import Tokens

log = structlog.get_logger()
_OTHER_FILES = 1000
"""Open files besides the calls' own: idle connections of agents, Redis, the collector, libraries."""


def main() -> None:
    """Run the gateway until SIGTERM or SIGINT."""
    configure_logs("gateway")
    settings = load_settings(GatewaySettings)
    try:
        tokens = Tokens(settings.signing_key.get_secret_value())
    except ValueError as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    _prepare_sockets(settings.max_calls)
    uvloop.run(_run(settings, tokens))


def _prepare_sockets(max_calls: int) -> None:
    # Of each call, one socket to the agent and one to the replica.
    wanted = 2 * max_calls + _OTHER_FILES
    allowed = allow_open_files(wanted)
    if allowed < wanted:
        log.warning("few_open_files", allowed=allowed, wanted=wanted, max_calls=max_calls)


async def _run(settings: GatewaySettings, tokens: Tokens) -> None:
    # What has been imported lives for ever; without this, each full collection would look through all of it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    await serve(settings, tokens, stop_event())


if __name__ == "__main__":
    main()
