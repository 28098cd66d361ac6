"""HTTP problem details (RFC 9457): the shape of every error that Leyden answers with."""

from leyden_contracts.base import Message


class Problem(Message):
    """One error, said so that a person knows what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    """What went wrong and what to change."""
    errors: list[str] = []
    """One line for each fault, where there are several (`line 7: ...`, `algorithm.steps: ...`)."""
