"""LangChain's agent (LangGraph inside), with the instrumentation named on the command line."""

import os
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def instrument(which: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if which == "openinference":
        from openinference.instrumentation.langchain import LangChainInstrumentor
    else:
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor as LangChainInstrumentor
    LangChainInstrumentor().instrument(tracer_provider=provider)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def solve(question: str) -> str:
    agent = create_agent(ChatOpenAI(model=os.environ["OPENAI_MODEL"]), [add], name="solver")
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].text


if __name__ == "__main__":
    instrument(sys.argv[1])
    print(solve(sys.argv[-1]))
