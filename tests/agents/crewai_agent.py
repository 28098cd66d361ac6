"""CrewAI: a crew of a writer with a tool and a checker, one task each."""

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def instrument() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    CrewAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
    OpenAIInstrumentor().instrument(tracer_provider=provider)


@tool("add")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def solve(question: str) -> str:
    gateway = {"base_url": os.environ["OPENAI_BASE_URL"]}
    policy, small = LLM(f"openai/{os.environ['OPENAI_MODEL']}", **gateway), LLM("openai/gpt-4o-mini", **gateway)
    writer = Agent(role="writer", goal="Work the answer out.", backstory="You like sums.", llm=policy, tools=[add])
    checker = Agent(role="checker", goal="Check the answer.", backstory="You trust nobody.", llm=small)
    write = Task(description=question, expected_output="A number.", agent=writer)
    check = Task(description="Check the answer.", expected_output="The number.", agent=checker, context=[write])
    return Crew(agents=[writer, checker], tasks=[write, check]).kickoff().raw


if __name__ == "__main__":
    instrument()
    print(solve(sys.argv[-1]))
