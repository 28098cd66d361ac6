"""AutoGen: a writer with a tool and a checker in a round-robin chat. It has OpenTelemetry built in."""

import asyncio
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def instrument(which: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    if which == "openai":
        OpenAIInstrumentor().instrument()
    if which == "openinference":
        AutogenAgentChatInstrumentor().instrument()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def solve(question: str) -> str:
    info = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False}
    client = OpenAIChatCompletionClient(
        model=os.environ["OPENAI_MODEL"],
        base_url=os.environ["OPENAI_BASE_URL"],
        model_info={**info, "family": "unknown"},
    )
    writer = AssistantAgent(
        "writer", client, tools=[add], reflect_on_tool_use=True, system_message="Work the answer out with your tool."
    )
    checker = AssistantAgent(
        "checker", client, system_message="Check the answer. If it is right say APPROVED and the answer."
    )
    done = TextMentionTermination("APPROVED") | MaxMessageTermination(8)
    result = await RoundRobinGroupChat([writer, checker], termination_condition=done).run(task=question)
    await client.close()
    return result.messages[-1].to_text()


if __name__ == "__main__":
    instrument(sys.argv[1])
    print(asyncio.run(solve(sys.argv[-1])))
