"""`python -m leyden_gateway`."""

import gc
import sys

import uvloop

from leyden_gateway.server import serve
from leyden_gateway.settings import GatewaySettings
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings
from leyden_runtime.shutdown import stop_event
from leyden_runtime.tokens import Tokens


def main() -> None:
    """Run the gateway until SIGTERM or SIGINT."""
    configure_logs("gateway")
    settings = load_settings(GatewaySettings)
    try:
        tokens = Tokens(settings.signing_key.get_secret_value())
    except ValueError as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    uvloop.run(_run(settings, tokens))


async def _run(settings: GatewaySettings, tokens: Tokens) -> None:
    # What has been imported lives for ever; without this, each full collection would look through all of it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    await serve(settings, tokens, stop_event())


if __name__ == "__main__":
    main()
