"""Who is rung for next, when more episodes are due than the workers can take. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one run could start now."""

    run: str
    tenant: str
    priority: int
    due: int


def deal(demands: Iterable[Demand], room: int, turn: int) -> dict[str, int]:
    """Return run -> rings, `room` at most: equal shares for tenants; within one, by priority, then equal for runs.

    What one cannot use, the others get (max-min fairness). `turn` counts the rounds: it moves the odd ring on.
    """
    tenants: dict[str, list[Demand]] = defaultdict(list)
    for demand in demands:
        if demand.due > 0:
            tenants[demand.tenant].append(demand)
    wants = {tenant: sum(demand.due for demand in runs) for tenant, runs in tenants.items()}
    dealt: dict[str, int] = {}
    for tenant, share in fill(wants, room, turn).items():
        dealt |= _within(tenants[tenant], share, turn)
    return dealt


def _within(runs: list[Demand], room: int, turn: int) -> dict[str, int]:
    dealt: dict[str, int] = {}
    for priority in sorted({demand.priority for demand in runs}, reverse=True):
        wants = {demand.run: demand.due for demand in runs if demand.priority == priority}
        shares = fill(wants, room - sum(dealt.values()), turn)
        dealt |= shares
    return dealt


def fill(wants: Mapping[str, int], room: int, turn: int) -> dict[str, int]:
    """Share `room` out so that the smallest share is as large as can be; nobody gets more than he wants."""
    names = sorted(wants)
    names = names[turn % len(names) :] + names[: turn % len(names)] if names else []
    shares: dict[str, int] = {}
    # Those who want least first: what they leave is for the rest. Ties by turn, so that the odd ring goes round.
    for left, name in zip(range(len(names), 0, -1), sorted(names, key=lambda name: wants[name]), strict=True):
        share = min(wants[name], -(-max(room, 0) // left))
        shares[name] = share
        room -= share
    return {name: share for name, share in shares.items() if share}


def interleave(episodes: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """Return (run, episode) pairs, one of each run in turn: the queue keeps the order, so it must be fair too."""
    most = max(map(len, episodes.values()), default=0)
    return [(run, ids[i]) for i in range(most) for run, ids in episodes.items() if i < len(ids)]
