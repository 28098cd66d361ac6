"""Which adapter: its name on a replica, and back. Every name is checked here before it touches a path or a URL."""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Self

from leyden_contracts import adapter_name

_NAME = re.compile(
    r"(?P<run>[a-z0-9][a-z0-9-]{0,47})--(?P<role>[a-z0-9][a-z0-9_]{0,31})--v(?P<version>[1-9][0-9]{0,8})"
)


class BadName(ValueError):
    """A name that Leyden never gives."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One policy version of one role. Raises BadName if its name could not be a policy version's."""

    run: str
    role: str
    version: int

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadName(f"{self.name!r} is no policy version's name")

    @property
    def name(self) -> str:
        """What replicas serve it as."""
        return adapter_name(self.run, self.role, self.version)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the adapter of that name; None if it is not one of Leyden's."""
        found = _NAME.fullmatch(name)
        return cls(found["run"], found["role"], int(found["version"])) if found else None


def whole(wanted: Iterable[Adapter], ready: Container[str]) -> list[tuple[str, int]]:
    """Return the (run, version) pairs whose adapters, one for each trained role, are all `ready`; sorted."""
    found: dict[tuple[str, int], bool] = {}
    for adapter in wanted:
        pair = (adapter.run, adapter.version)
        found[pair] = found.get(pair, True) and adapter.name in ready
    return sorted(pair for pair, all_ready in found.items() if all_ready)
