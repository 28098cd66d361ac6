"""Why a request, or one of its spans, is not taken."""

from dataclasses import dataclass


class Refused(Exception):
    """The whole request is refused."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        """Of HTTP; `status.CODES` has gRPC's."""
        self.detail = detail


class Refusal(Exception):
    """One span is not kept."""

    def __init__(self, kind: str, detail: str, run: str | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        """One of `KINDS`."""
        self.detail = detail
        self.run = run
        """Whose quarantine it goes to; None if nobody can tell."""


KINDS = {
    "malformed": "it cannot be read as what it claims to be",
    "oversize": "it, or a part of it, is larger than may be",
    "mismatched": "its tokens and logprobs do not fit each other",
    "nan": "a logprob is no finite number",
    "no_run": "it says no run",
    "foreign": "it says another run, episode or attempt than its sender's token",
    "forged": "an agent's own span claims to be a call, which only the gateway records",
    "fenced": "its attempt is not its episode's live one any more",
}
"""Kind of refusal -> what is wrong with the span."""


@dataclass(frozen=True, slots=True)
class RefusedSpan:
    """A span that was not kept."""

    kind: str
    detail: str
    span: bytes
    """Serialized, and cut."""
    size: int
    """Bytes that it had."""
