"""Where the API is: what is given wins over the environment, which wins over what `leyden up` wrote."""

from pathlib import Path

import pytest

from leyden_client.connection import find_connection
from leyden_client.errors import InputError


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_URL", "API_TOKEN", "REDIS_URL", "STORE_URL"):
        monkeypatch.delenv(f"LEYDEN_{name}", raising=False)


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connection.json").write_text(
        '{"api_url": "http://file", "token": "file", "redis_url": "redis://file", "store_url": "file:///s", "pid": 1}'
    )
    monkeypatch.setenv("LEYDEN_API_TOKEN", "environment")
    found = find_connection("http://given", None, tmp_path)
    assert (found.api_url, found.token, found.redis_url) == ("http://given", "environment", "redis://file")


def test_nothing_known_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`leyden up`, or set LEYDEN_API_URL and LEYDEN_API_TOKEN"):
        find_connection(None, None, tmp_path).client()
    with pytest.raises(InputError, match=r"set LEYDEN_API_TOKEN$"):
        find_connection("http://given", None, tmp_path).client()
    (tmp_path / "connection.json").write_text("{")
    with pytest.raises(InputError, match="cannot read"):
        find_connection(None, None, tmp_path)
