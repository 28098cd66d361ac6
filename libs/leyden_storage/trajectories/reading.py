"""Writing batches, and reading a run's trajectories back: all of them as a stream, or one by its batch's name."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from leyden_contracts import Trajectory
from leyden_storage.base import ObjectNotFound, ObjectStore
from leyden_storage.keys import trajectories_prefix, trajectory_batch_key
from leyden_storage.trajectories.batch_format import Detail
from leyden_storage.trajectories.decoding import decode_batch
from leyden_storage.trajectories.encoding import encode_batch
from leyden_storage.trajectories.ranges import ObjectFile

_WHOLE_BYTES = 2**18
"""A smaller object is fetched whole: that takes less time than asking for its parts."""
_SUFFIX = ".parquet"
_AHEAD = 2
"""Batches that are read before they are asked for."""


class TrajectoryNotFound(ObjectNotFound):
    """This episode is not in this batch."""


def write_batch(store: ObjectStore, run: str, batch: str, trajectories: Sequence[Trajectory]) -> bool:
    """Store a batch once; False if the name is taken. Raises StoreError."""
    return store.create(trajectory_batch_key(run, batch), encode_batch(trajectories))


def read_batch(
    store: ObjectStore,
    run: str,
    batch: str,
    detail: Detail = Detail.TOKENS,
    wanted: Callable[[str], bool] | None = None,
) -> list[Trajectory]:
    """Return the batch's trajectories, or those of the episodes that are `wanted`.

    Raises ObjectNotFound, StoreError, UnreadableBatch.
    """
    key = trajectory_batch_key(run, batch)
    if detail is Detail.TOKENS and wanted is None:
        return decode_batch(store.get(key), detail)
    size = store.size(key)
    return decode_batch(store.get(key) if size <= _WHOLE_BYTES else ObjectFile(store, key, size), detail, wanted)


def read_trajectory(store: ObjectStore, run: str, batch: str, episode: str) -> Trajectory:
    """Return the episode's trajectory. Raises ObjectNotFound, StoreError, UnreadableBatch."""
    found = read_batch(store, run, batch, wanted=episode.__eq__)
    if not found:
        raise TrajectoryNotFound(f"{episode} is not in {trajectory_batch_key(run, batch)}")
    return found[0]


def stored_batches(store: ObjectStore, run: str) -> Iterator[str]:
    """Yield the names of the run's batches, in order. Raises StoreError."""
    prefix = trajectories_prefix(run)
    for key in store.list(prefix):
        yield key.removeprefix(prefix).removesuffix(_SUFFIX)


def stored_trajectories(
    store: ObjectStore,
    run: str,
    *,
    groups: Collection[str] | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Trajectory]:
    """Yield the run's trajectories in the order in which they were assembled, with a few batches in memory at a time.

    Args:
        store: where they are.
        run: whose they are.
        groups: only those of these groups.
        since: only episodes whose first call came at this time or later, in seconds since the epoch. Episodes
            without calls pass.
        until: only episodes whose first call came before this time.

    Raises:
        StoreError: the store did not answer.
        UnreadableBatch: an object is none that this version can read.
    """
    for one in _stream(store, run, Detail.TOKENS, groups):
        if _within(one, since, until):
            yield one


def stored_heads(
    store: ObjectStore,
    run: str,
    *,
    groups: Collection[str] | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Trajectory]:
    """Yield what `stored_trajectories` does, with no `transitions`, and without reading their tokens."""
    detail = Detail.HEADS if since is None and until is None else Detail.CALLS
    for one in _stream(store, run, detail, groups):
        if _within(one, since, until):
            yield one.model_copy(update={"transitions": ()}) if one.transitions else one


def _stream(store: ObjectStore, run: str, detail: Detail, groups: Collection[str] | None) -> Iterator[Trajectory]:
    """Yield what is chosen, while the next batches are fetched and unpacked by other threads."""
    coming: deque[Future[list[Trajectory]]] = deque()
    with ThreadPoolExecutor(_AHEAD, "trajectories") as pool:
        try:
            for batch, wanted in _choices(store, run, groups):
                coming.append(pool.submit(read_batch, store, run, batch, detail, wanted))
                if len(coming) > _AHEAD:
                    yield from coming.popleft().result()
            while coming:
                yield from coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


Choice = Callable[[str], bool] | None


def _choices(store: ObjectStore, run: str, groups: Collection[str] | None) -> Iterator[tuple[str, Choice]]:
    """Yield each batch, and which of its episodes to read; None for all of them."""
    names = list(stored_batches(store, run))
    home = _twice_stored(store, run, names)
    chosen = None if groups is None else frozenset(groups)
    for name in names:
        yield name, _choice(name, chosen, home)


def _choice(name: str, groups: frozenset[str] | None, home: dict[str, str]) -> Choice:
    if groups is None and not home:
        return None

    def wanted(episode: str) -> bool:
        in_group = groups is None or episode.rpartition(".")[0] in groups
        return in_group and home.get(episode, name) == name

    return wanted


def _twice_stored(store: ObjectStore, run: str, names: Iterable[str]) -> dict[str, str]:
    """Return episode -> the batch that counts, of those that are in several: that of the highest attempt.

    Only a collector that outlived its ledger can leave such a thing, so only a run that was recovered is searched.
    """
    names = list(names)
    if len({name.partition("-")[0] for name in names}) < 2:
        return {}
    times: Counter[str] = Counter()
    best: dict[str, tuple[int, str]] = {}
    for name in names:
        for head in read_batch(store, run, name, Detail.HEADS):
            times[head.episode] += 1
            best[head.episode] = max(best.get(head.episode, (head.attempt, name)), (head.attempt, name))
    return {episode: best[episode][1] for episode, count in times.items() if count > 1}


def _within(trajectory: Trajectory, since: float | None, until: float | None) -> bool:
    if not trajectory.transitions:
        return True
    first = trajectory.transitions[0].start_ns
    return (since is None or first >= since * 1e9) and (until is None or first < until * 1e9)
