"""Agents with OpenTelemetry's SDK and a long batch delay, that end in different ways; each makes two calls first.

A task's input: `flushed` leaves the spans to the worker's own flush, `private` hides the provider from it, `exits` is a
process that is gone before it could flush, `stuck` sends to the address in `to`, where nobody ever answers.
"""

import os
import subprocess
import sys
from pathlib import Path

CALLS = 2
BATCHES = {"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_BSP_EXPORT_TIMEOUT": "3600000", "OTEL_METRICS_EXPORTER": "none"}


def play(task):
    """Return what became of it."""
    if task["ends"] == "exits":
        program = "import os, instrumented; instrumented.work(); os._exit(0)"
        subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True)
        return "exited"
    if task["ends"] == "stuck":
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = task["to"]
    work(known=task["ends"] != "private")
    return "done"


def work(known=False):
    """Call the model, and use a tool after each call."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from scripted import play as call

    os.environ.update(BATCHES)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=3600)))
    if known:
        trace.set_tracer_provider(provider)
    tracer = provider.get_tracer("instrumented")
    for _ in range(CALLS):
        call([{"call": 1}])
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
        tracer.start_span("execute_tool look", attributes=attributes).end()
