"""A reply as the output items of a Responses answer, and as the events that announce them piece by piece.

A whole answer is made of the same pieces, so what is streamed and what is not hold the same items.
"""

from typing import Any

import msgspec

from leyden_gateway.protocols.base import Delta

Event = dict[str, Any]
Item = dict[str, Any]

_LOGPROBS = msgspec.json.Decoder(dict[str, Any] | None)
_PART_EVENTS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}
"""Kind of content part -> the prefix of its events, and where its text is."""


class Output:
    """Takes the pieces of one message; `items` holds what they add up to. Every method returns events, unnumbered."""

    def __init__(self, id: str) -> None:
        self.items: list[Item] = []
        self._id = id
        self._open = False
        self._held_logprobs: list[Any] = []
        self._calls: dict[int, int] = {}
        """Index of a tool call -> of its item."""

    def take(self, delta: Delta, logprobs: msgspec.Raw | None) -> list[Event]:
        """Add a piece."""
        if logprobs is not None:
            self._held_logprobs += (_LOGPROBS.decode(logprobs) or {}).get("content") or []
        events: list[Event] = []
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        if thought:
            events += self._write("reasoning", "reasoning_text", thought)
        if delta.get("content"):
            events += self._write("message", "output_text", delta["content"])
        if delta.get("refusal"):
            events += self._write("message", "refusal", delta["refusal"])
        for call in delta.get("tool_calls") or []:
            events += self._call(call)
        return events

    def close(self, cut: bool) -> list[Event]:
        """End the last item; it is incomplete if the reply was cut short. A reply of nothing is an empty message."""
        events = [] if self.items else self._part("message", "output_text")
        return events + self._end("incomplete" if cut else "completed")

    def _write(self, kind: str, part_kind: str, text: str) -> list[Event]:
        events = self._part(kind, part_kind)
        part = self.items[-1]["content"][-1]
        prefix, place = _PART_EVENTS[part_kind]
        part[place] += text
        event: Event = {"type": f"{prefix}.delta", **self._where(part=True), "delta": text}
        if part_kind == "output_text":
            event["logprobs"], self._held_logprobs = self._held_logprobs, []
            part["logprobs"] += event["logprobs"]
        return [*events, event]

    def _part(self, kind: str, part_kind: str) -> list[Event]:
        """Make sure that the open item is of `kind`, and its last part of `part_kind`."""
        events: list[Event] = []
        if not self._open or self.items[-1]["type"] != kind:
            empty: Item = {"role": "assistant"} if kind == "message" else {"summary": []}
            events += self._begin({"type": kind, **empty, "content": []}, "msg" if kind == "message" else "rs")
        parts = self.items[-1]["content"]
        if parts and parts[-1]["type"] == part_kind:
            return events
        events += self._end_part()
        more: Item = {"annotations": [], "logprobs": []} if part_kind == "output_text" else {}
        parts.append({"type": part_kind, _PART_EVENTS[part_kind][1]: "", **more})
        return [*events, {"type": "response.content_part.added", **self._where(part=True), "part": _copy(parts[-1])}]

    def _call(self, call: dict[str, Any]) -> list[Event]:
        function, events = call.get("function") or {}, []
        index = call.get("index", len(self._calls))
        if index not in self._calls:
            item = {"type": "function_call", "call_id": call.get("id") or f"call_{self._id}_{index}"}
            events += self._begin({**item, "name": function.get("name") or "", "arguments": ""}, "fc")
            self._calls[index] = len(self.items) - 1
        arguments = function.get("arguments") or ""
        self.items[self._calls[index]]["arguments"] += arguments
        if arguments:
            where = self._where(self._calls[index])
            events.append({"type": "response.function_call_arguments.delta", **where, "delta": arguments})
        return events

    def _begin(self, item: Item, prefix: str) -> list[Event]:
        events = self._end("completed")
        id = f"{prefix}_{self._id}_{len(self.items)}"
        self.items.append({"id": id, **item, "status": "in_progress"})
        self._open = True
        return [*events, self._item_event("added")]

    def _end(self, status: str) -> list[Event]:
        if not self._open:
            return []
        item = self.items[-1]
        events = self._end_part()
        if item["type"] == "function_call":
            done = {"name": item["name"], "arguments": item["arguments"]}
            events.append({"type": "response.function_call_arguments.done", **self._where(), **done})
        item["status"] = status
        self._open = False
        return [*events, self._item_event("done")]

    def _end_part(self) -> list[Event]:
        parts = self.items[-1].get("content")
        if not parts:
            return []
        prefix, place = _PART_EVENTS[parts[-1]["type"]]
        done = {"type": f"{prefix}.done", **self._where(part=True), place: parts[-1][place]}
        if "logprobs" in parts[-1]:
            # Tokens without text, such as the one that ends a turn, have logprobs too.
            parts[-1]["logprobs"] += self._held_logprobs
            self._held_logprobs = []
            done["logprobs"] = parts[-1]["logprobs"]
        return [done, {"type": "response.content_part.done", **self._where(part=True), "part": _copy(parts[-1])}]

    def _item_event(self, what: str) -> Event:
        place = len(self.items) - 1
        return {"type": f"response.output_item.{what}", "output_index": place, "item": _copy(self.items[place])}

    def _where(self, item: int | None = None, part: bool = False) -> dict[str, Any]:
        place = len(self.items) - 1 if item is None else item
        where = {"item_id": self.items[place]["id"], "output_index": place}
        return {**where, "content_index": len(self.items[place]["content"]) - 1} if part else where


def _copy(item: Item) -> Item:
    """Return an item as it is now: it grows later."""
    return {**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)
