"""What the ledger refuses, and why. The docstring is the message."""


class LedgerError(Exception):
    """The ledger refused this."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or (self.__doc__ or "").strip())


class RunNotFound(LedgerError):
    """There is no such run."""


class EpisodeNotFound(LedgerError):
    """There is no such episode."""


class Fenced(LedgerError):
    """This attempt is no longer the live one of its episode; stop it."""


class TooManyCalls(LedgerError):
    """This attempt has made all the calls its run allows (`episodes.max_calls`)."""


class Conflict(LedgerError):
    """This idempotency key was used for other tasks before; use a new one."""


class Sealed(LedgerError):
    """This run is sealed: it takes no more training tasks. Create a new run."""
