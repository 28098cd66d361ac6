"""`python -m leyden_gateway`."""

import asyncio
import sys

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
    asyncio.run(_run(settings, tokens))


async def _run(settings: GatewaySettings, tokens: Tokens) -> None:
    await serve(settings, tokens, stop_event())


if __name__ == "__main__":
    main()
