"""Exports appear whole, and never over what somebody else has written."""

import io
import tarfile
from pathlib import Path
from typing import IO

import pytest

from leyden_client.errors import InputError
from leyden_client.export import write_folder, write_whole


def tar_of(file: IO[bytes], **files: bytes) -> None:
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_what_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def fetch(file: IO[bytes]) -> None:
        file.write(b"ours")
        path.write_bytes(b"theirs")

    with pytest.raises(InputError, match="--force"):
        write_whole(path, fetch)
    assert path.read_bytes() == b"theirs" and [one.name for one in tmp_path.iterdir()] == ["out"]
    write_whole(path, fetch, force=True)
    assert path.read_bytes() == b"ours" and [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("write", [write_whole, write_folder])
def test_what_is_not_whole_is_not_there(tmp_path: Path, write) -> None:
    def fetch(file: IO[bytes]) -> None:
        file.write(b"the beginning")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        write(tmp_path / "out", fetch)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_replaced_as_a_whole_and_a_tar_stays_inside_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    write_folder(path, lambda file: tar_of(file, **{"README.md": b"1", "train__a": b"1"}))
    write_folder(path, lambda file: tar_of(file, **{"README.md": b"2"}), force=True)
    assert [one.name for one in path.iterdir()] == ["README.md"] and (path / "README.md").read_bytes() == b"2"
    with pytest.raises(tarfile.OutsideDestinationError):
        write_folder(path, lambda file: tar_of(file, **{"..__..__evil": b"3"}), force=True)
    assert (path / "README.md").read_bytes() == b"2" and [one.name for one in tmp_path.iterdir()] == ["data"]
