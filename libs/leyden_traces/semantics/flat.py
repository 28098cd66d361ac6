"""Lists and dicts that an instrumentation has spread over keys (`llm.input_messages.0.message.role`), put together."""

from typing import Any

from leyden_traces.semantics.values import Attributes

_DEPTH = 12


def unflatten(attributes: Attributes, prefix: str) -> Any:
    """Return what stands under `prefix.`: numbered keys as a list, by number, others as a dict; or None."""
    root: dict[str, Any] = {}
    for key in attributes:
        if key.startswith(f"{prefix}."):
            _place(root, key[len(prefix) + 1 :].split(".", _DEPTH), attributes.get(key))
    return _listed(root) if root else None


def numbered(attributes: Attributes, prefix: str) -> list[Any]:
    """Return what `unflatten` gives if it is a list; its items that are dicts, in order."""
    found = unflatten(attributes, prefix)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def within(value: Any, *path: str) -> Any:
    """Return what stands at `path` in nested dicts (a number for a place in a list), or None."""
    for part in path:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _place(node: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        below = node.setdefault(part, {})
        if not isinstance(below, dict):
            return  # a value stands where others have keys: the first that came stays
        node = below
    node.setdefault(parts[-1], value)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    made = {key: _listed(value) for key, value in node.items()}
    if made and all(key.isascii() and key.isdecimal() for key in made):
        return [made[key] for key in sorted(made, key=lambda key: (len(key), key))]
    return made
