"""What is known of each adapter on the replica: proved, withheld or unwanted. Pure: the clock is an argument."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pauses:
    """All in seconds; see the settings of the same names."""

    retire_grace_s: float
    files_grace_s: float
    retry_s: float
    retry_most_s: float


@dataclass(frozen=True, slots=True)
class Withheld:
    """A version that could not be brought into service."""

    reason: str
    failures: int
    again_at: float


class Shelf:
    """The memory of one loader about its replica.

    Nothing in it must survive a restart of either: whatever is not proved here is proved again.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._life = 0
        self._wanted: set[str] = set()
        self._loaded: set[str] = set()
        self._proved: set[str] = set()
        self._withheld: dict[str, Withheld] = {}
        self._wanted_since: dict[str, float] = {}
        self._unwanted_since: dict[str, float] = {}
        self._unused_since: dict[str, float] = {}

    @property
    def life(self) -> int:
        """Number of the replica's life: a proof from an earlier one is worth nothing."""
        return self._life

    @property
    def loaded(self) -> frozenset[str]:
        """What the replica listed last."""
        return frozenset(self._loaded)

    @property
    def proved(self) -> frozenset[str]:
        """Proved in this life, wanted or not."""
        return frozenset(self._proved)

    @property
    def ready(self) -> set[str]:
        """Wanted, loaded and proved."""
        return self._wanted & self._proved

    @property
    def rejected(self) -> dict[str, str]:
        """Wanted and withheld, with the reason."""
        return {name: held.reason for name, held in self._withheld.items() if name in self._wanted}

    def lost(self) -> None:
        """The replica is away: when it comes back it may be another process, which has to prove all anew."""
        self._life += 1
        self._loaded, self._proved, self._withheld = set(), set(), {}
        self._unwanted_since, self._unused_since = {}, {}

    def see(self, loaded: Iterable[str], wanted: Iterable[str], now: float) -> None:
        """Note what the replica has loaded and what the runs want."""
        self._loaded, self._wanted = set(loaded), set(wanted)
        self._proved &= self._loaded
        self._withheld = {name: held for name, held in self._withheld.items() if name in self._wanted}
        self._wanted_since = {name: self._wanted_since.get(name, now) for name in self._wanted}
        self._unwanted_since = {name: self._unwanted_since.get(name, now) for name in self._loaded - self._wanted}

    def due(self, now: float) -> list[str]:
        """Return what is to be brought into service now, longest wanted first."""
        open_ = [name for name in self._wanted - self._proved if self._may_try(name, now)]
        return sorted(open_, key=lambda name: (self._wanted_since[name], name))

    def prove(self, name: str, life: int, now: float) -> float | None:
        """Note a proof; return the seconds since the version was wanted, or None if it is of an earlier life."""
        if life != self._life:
            return None
        self._loaded.add(name)
        self._proved.add(name)
        self._withheld.pop(name, None)
        return now - self._wanted_since.get(name, now)

    def withhold(self, name: str, life: int, reason: str, now: float) -> float | None:
        """Note a failure; return the seconds to the next attempt, or None if it is of an earlier life."""
        if life != self._life:
            return None
        last = self._withheld.get(name)
        failures = last.failures + 1 if last else 1
        pause = min(self._pauses.retry_s * 2 ** min(failures - 1, 30), self._pauses.retry_most_s)
        self._proved.discard(name)
        self._withheld[name] = Withheld(reason, failures, now + pause)
        return pause

    def to_unload(self, now: float) -> list[str]:
        """Return what is loaded, and not wanted for so long that no gateway remembers it as ready."""
        grace = self._pauses.retire_grace_s
        return sorted(name for name, since in self._unwanted_since.items() if now - since >= grace)

    def keep(self, name: str, now: float) -> None:
        """Note that an adapter could not be unloaded: try again after another grace."""
        self._unwanted_since[name] = now

    def unloaded(self, name: str) -> None:
        """Note that the replica has let go of an adapter."""
        self._loaded.discard(name)
        self._proved.discard(name)
        self._unwanted_since.pop(name, None)

    def to_delete(self, on_disk: Iterable[str], now: float) -> list[str]:
        """Return whose files nobody has used for so long that no call can need them."""
        unused = set(on_disk) - self._wanted - self._loaded
        self._unused_since = {name: self._unused_since.get(name, now) for name in unused}
        grace = self._pauses.files_grace_s
        return sorted(name for name, since in self._unused_since.items() if now - since >= grace)

    def _may_try(self, name: str, now: float) -> bool:
        held = self._withheld.get(name)
        return held is None or now >= held.again_at
