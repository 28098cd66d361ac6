"""OpenAI's Agents SDK: a writer with a tool, who hands its answer to a checker."""

import os
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from agents import Agent, Runner, function_tool, set_trace_processors


def instrument(which: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    set_trace_processors([])  # the SDK's own would send the traces to OpenAI
    if which == "openinference":
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    else:
        from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def solve(question: str) -> str:
    checker = Agent(name="checker", instructions="Check the answer. Say it again if it is right.", model="gpt-4o-mini")
    writer = Agent(
        name="writer",
        instructions="Work the answer out with your tool, then hand it to the checker.",
        model=os.environ["OPENAI_MODEL"],
        tools=[add],
        handoffs=[checker],
    )
    return Runner.run_sync(writer, question).final_output


if __name__ == "__main__":
    instrument(sys.argv[1])
    print(solve(sys.argv[-1]))
