"""A clean stop on SIGTERM and SIGINT."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event that is set by the first SIGTERM or SIGINT. Call from the running loop's main thread."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


async def sleep_unless(event: asyncio.Event, seconds: float) -> bool:
    """Wait `seconds`, or less if `event` is set; say whether it is."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
