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


class Outpaced(LedgerError):
    """Another promotion of this run came first: look at what is promoted now, and decide again."""


class Sealed(LedgerError):
    """This run is sealed or cancelled: it takes no more such tasks. Create a new run."""


class BacklogFull(LedgerError):
    """The run has as many unfinished episodes as it may have: upload again when some have ended."""

    def __init__(self, waiting: int, most: int) -> None:
        super().__init__(f"{waiting} episodes of this run have not ended, and {most} is the limit with this upload")
        self.retry_after_s = 30.0
