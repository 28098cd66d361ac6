"""Bad settings end with code 2 and a message."""

from pathlib import Path

import pytest

from leyden_adapter_loader.__main__ import main


@pytest.fixture(autouse=True)
def _no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs go to whatever stderr is when they are set up; here that is closed after the test."""
    monkeypatch.setattr("leyden_adapter_loader.__main__.configure_logs", lambda service: None)


GOOD = {"REPLICA_URL": "http://r:1", "REPLICA_ID": "r", "BASE_MODEL": "m"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"REPLICA_URL": "localhost:8000"}, "LEYDEN_ADAPTER_LOADER_REPLICA_URL"),
        ({"REPLICA_ID": "../x"}, "LEYDEN_ADAPTER_LOADER_REPLICA_ID"),
        ({"REPLICA_ID": None}, "LEYDEN_ADAPTER_LOADER_REPLICA_ID"),
        ({"CACHE_DIR": "relative"}, "absolute"),
        ({"CACHE_DIR": "/dev/null/x"}, "/dev/null"),
        ({"BASE_MODEL": ""}, "LEYDEN_ADAPTER_LOADER_BASE_MODEL"),
        ({"POLL_S": "0"}, "LEYDEN_ADAPTER_LOADER_POLL_S"),
        ({"SPEED": "11"}, "LEYDEN_ADAPTER_LOADER_SPEED"),
    ],
)
def test_bad_settings(
    changes: dict[str, str | None],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LEYDEN_STORE_URL", f"file://{tmp_path}/store")
    for name, value in (GOOD | {"CACHE_DIR": str(tmp_path / "cache")} | changes).items():
        if value is not None:
            monkeypatch.setenv(f"LEYDEN_ADAPTER_LOADER_{name}", value)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert word in capsys.readouterr().err


def test_a_bad_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LEYDEN_STORE_URL", "nowhere")
    for name, value in (GOOD | {"CACHE_DIR": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(f"LEYDEN_ADAPTER_LOADER_{name}", value)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "nowhere" in capsys.readouterr().err
