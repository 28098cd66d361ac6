"""`Fact`: what one span of an agent says, whichever convention it is written in."""

from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal["llm", "tool", "agent", "retrieval", "other", "plain"]
"""`plain` is a span of no convention: it only holds the tree together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One span. What its instrumentation does not say is empty."""

    span: str
    """16 hex digits, as is `parent`."""
    parent: str = ""
    process: str = ""
    """Digest of the resource: spans with the same one were timed by the same clock."""
    start_ns: int = 0
    end_ns: int = 0
    kind: Kind = "plain"
    name: str = ""
    """Of the tool, agent or retriever."""
    agent: str = ""
    """The agent that this is, or that did it."""
    model: str = ""
    response_id: str = ""
    messages: str = ""
    """JSON list of chat messages, as is `reply`."""
    reply: str = ""
    asked_tools: tuple[str, ...] = ()
    """Ids of the tool calls in the reply."""
    odd_arguments: bool = False
    """The reply asks for a tool with arguments that are no JSON object, or a tool refused its arguments."""
    finish_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    tool_call_id: str = ""
    arguments: str = ""
    same_arguments: str = ""
    """Equal for equal arguments, however they are spaced and ordered; empty if they are not known."""
    result: str = ""
    failed: bool = False
    error: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        """A total order, so that the same spans in any order make the same trajectory."""
        return tuple(getattr(self, each.name) for each in fields(self))

    @property
    def size(self) -> int:
        """Characters of text that this holds."""
        return len(self.messages) + len(self.reply) + len(self.arguments) + len(self.result) + len(self.error)
