"""Celery as its manual has it: what `just bench ledger` compares with. Broker and results from PEER_* variables.

Usage: `python stock_celery.py publish N` (a `.delay()` loop), `... results N` (the same, and each result fetched),
`... note PATH` (one task, sent when stdin ends).
As an application: `celery -A stock_celery worker`.
"""

import json
import os
import sys
import time
from pathlib import Path

from celery import Celery

app = Celery("peer", broker=os.environ["PEER_BROKER"], backend=os.environ.get("PEER_RESULTS"))
if "PEER_VISIBILITY_S" in os.environ:
    app.conf.broker_transport_options = {"visibility_timeout": int(os.environ["PEER_VISIBILITY_S"])}


@app.task(name="nothing")
def nothing(number: int) -> str:
    """Cost nothing."""
    return "done"


@app.task(name="note", acks_late=True)
def note(path: str) -> None:
    """Say when and where this runs, and go on for long."""
    with Path(path).open("a") as file:
        file.write(f"{time.time()} {os.getppid()}\n")
    time.sleep(600)


def main() -> None:
    """Publish; print the seconds of it, and those of its CPU."""
    if sys.argv[1] == "note":
        sys.stdin.read()
        note.delay(sys.argv[2])
        return
    what, count = sys.argv[1], int(sys.argv[2])
    nothing.delay(0)
    started, before = time.perf_counter(), time.process_time()
    sent = [nothing.delay(number) for number in range(count)]
    if what == "results":
        for result in sent:
            result.get(timeout=120)
    print(json.dumps({"seconds": time.perf_counter() - started, "cpu": time.process_time() - before}))


if __name__ == "__main__":
    main()
