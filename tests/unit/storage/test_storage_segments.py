"""Merged segments: nothing lost, nothing twice, wherever the merging is cut off."""

import contextlib
import threading
from pathlib import Path

import pytest

from leyden_storage import LocalStore, ObjectNotFound, StoreError
from leyden_storage.keys import merged_segments_key, merged_segments_prefix, segment_key, segments_prefix
from leyden_storage.segments import _index, loose_segments, merge_segments, read_segments

RUN = "mine"


class Killed(BaseException):
    """The process ends here."""


class Deadly(LocalStore):
    """Ends the process at the `last` write or deletion, before or after it is done."""

    def __init__(self, root: Path, last: int, after: bool) -> None:
        super().__init__(root)
        self.left, self.after = last, after

    def create(self, key: str, data: bytes) -> bool:
        return self._step(lambda: LocalStore.create(self, key, data))

    def delete(self, key: str) -> None:
        self._step(lambda: LocalStore.delete(self, key))

    def _step(self, step):
        self.left -= 1
        if self.left > 0 or self.after:
            done = step()
        if self.left <= 0:
            raise Killed
        return done


def fill(store: LocalStore, count: int = 14) -> list[bytes]:
    """Write segments of several sizes; return what they hold, sorted."""
    segments = [b"%03d-" % number * (number % 7 + 1) for number in range(count)]
    for number, segment in enumerate(segments):
        assert store.create(segment_key(RUN, f"{number * 7919 % 256:02x}{number:030x}"), segment)
    return sorted(segments)


def merge(store: LocalStore, most_bytes: int = 60) -> list[int]:
    keys = list(loose_segments(store, RUN))
    return [merged.segments for merged in merge_segments(store, RUN, keys, most_bytes)]


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leyden_storage.segments._FRAME_BYTES", 40)
    monkeypatch.setattr("leyden_storage.segments._AT_ONCE", 2)


def test_merged_segments_read_as_before(store: LocalStore) -> None:
    segments = fill(store)
    assert sorted(read_segments(store, RUN)) == segments
    objects = merge(store)
    assert len(objects) > 1 and sum(objects) in (13, 14)
    assert len(list(store.list(segments_prefix(RUN)))) <= len(objects) + 1
    assert sorted(read_segments(store, RUN)) == segments
    assert merge(store) == [], "there is nothing left to merge"


def test_a_merged_object_is_a_plain_zstd_file_of_all_spans(store: LocalStore, tmp_path: Path) -> None:
    segments = fill(store)
    merge(store, 10**6)
    data = store.get(merged_segments_key(RUN, 1))
    zstandard = pytest.importorskip("zstandard")
    plain = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    assert sorted(plain.split(b"-")) == sorted(b"".join(segments).split(b"-"))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 22, 2))
def test_cut_off_anywhere_a_reader_sees_each_segment_once_and_the_next_goes_on(
    store: LocalStore, tmp_path: Path, step: int, after: bool
) -> None:
    segments = fill(store)
    deadly = Deadly(tmp_path / "store", step, after)
    keys = list(loose_segments(deadly, RUN))
    with contextlib.suppress(Killed):
        list(merge_segments(deadly, RUN, keys, 60))
    assert sorted(read_segments(store, RUN)) == segments
    merge(store)
    assert sorted(read_segments(store, RUN)) == segments
    assert len(list(loose_segments(store, RUN))) <= 1
    merged = [
        name for key in store.list(merged_segments_prefix(RUN)) for frame in _index(store, key)[0] for name, _ in frame
    ]
    assert len(merged) == len(set(merged)), "none is merged twice"


def test_a_slow_one_does_not_overwrite_what_a_fast_one_has_merged(store: LocalStore, tmp_path: Path) -> None:
    class Slow(LocalStore):
        """Another one merges everything just before this one writes."""

        def create(self, key: str, data: bytes) -> bool:
            merge(store, 10**6)
            return super().create(key, data)

        def put(self, key: str, data: bytes) -> None:
            merge(store, 10**6)
            super().put(key, data)

    segments = fill(store)
    slow = Slow(tmp_path / "store")
    assert list(merge_segments(slow, RUN, list(loose_segments(store, RUN)), 60)) == []
    assert sorted(read_segments(store, RUN)) == segments


def test_several_at_once_merge_each_segment_once(store: LocalStore) -> None:
    segments = fill(store)
    keys = list(loose_segments(store, RUN))  # all begin with the same list, as late as some of them run
    threads = [threading.Thread(target=lambda: list(merge_segments(store, RUN, keys, 60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_segments(store, RUN)) == segments
    merge(store)
    assert sorted(read_segments(store, RUN)) == segments


@pytest.mark.parametrize("moment", range(0, 15, 2))
def test_a_reader_misses_nothing_that_is_merged_meanwhile(store: LocalStore, moment: int) -> None:
    segments = fill(store)
    reading = read_segments(store, RUN)
    read = [next(reading) for _ in range(min(moment, len(segments)))]
    merge(store)
    assert sorted([*read, *reading]) == segments


def test_late_segments_get_an_object_of_their_own(store: LocalStore) -> None:
    segments = fill(store)
    first = len(merge(store))
    late = [b"late-1", b"late-2"]
    for number, segment in enumerate(late):
        store.create(segment_key(RUN, f"late{number}"), segment)
    merge(store)
    assert len(list(store.list(merged_segments_prefix(RUN)))) == first + 1
    assert sorted(read_segments(store, RUN)) == sorted(segments + late)


def test_a_damaged_object_is_an_error_not_less_data(store: LocalStore) -> None:
    fill(store)
    merge(store)
    key = merged_segments_key(RUN, 1)
    for data in (b"", b"12345678", store.get(key)[:-3]):
        store.put(key, data)
        with pytest.raises(StoreError) as error:
            list(read_segments(store, RUN))
        assert not isinstance(error.value, ObjectNotFound)
