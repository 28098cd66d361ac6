"""`leyden check` and the commands that other packages bring."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from leyden_client.cli import app, plugins
from leyden_client.cli.app import Guarded
from leyden_ledger import RunNotFound
from leyden_runtime.tokens import Claims, Scope, Tokens


def check(monkeypatch: pytest.MonkeyPatch, folder: Path, outcome: Any, **environment: str) -> tuple[int, str]:
    async def check_run(ledger: object, store: object, run: str) -> list[str]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    module = ModuleType("leyden_ledger.check")
    module.check_run = check_run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "leyden_ledger.check", module)
    known = {"LEYDEN_REDIS_URL": "redis://127.0.0.1:1", "LEYDEN_STORE_URL": f"file://{folder}"}
    result = CliRunner().invoke(app, ["--data-dir", str(folder), "check", "mine"], env={**known, **environment})
    return result.exit_code, result.output


def test_check_tells_violations_by_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check(monkeypatch, tmp_path, []) == (0, "run mine: no violation\n")
    assert check(monkeypatch, tmp_path, ["I2: twice", "I3: stale"]) == (1, "I2: twice\nI3: stale\n")
    assert check(monkeypatch, tmp_path, RunNotFound("there is no run 'mine'"))[0] == 2
    code, text = check(monkeypatch, tmp_path, [], LEYDEN_REDIS_URL="")
    assert code == 2 and "LEYDEN_REDIS_URL" in text
    assert check(monkeypatch, tmp_path, [], LEYDEN_STORE_URL="/nowhere")[0] == 1


def test_a_token_has_the_scope_that_was_asked_for(signing_key: str) -> None:
    def mint(*arguments: str) -> Claims:
        result = CliRunner().invoke(app, ["token", *arguments], env={"LEYDEN_SIGNING_KEY": signing_key})
        assert result.exit_code == 0, result.output
        return Tokens(signing_key).verify(result.output.strip(), *Scope)

    assert mint() == Claims(Scope.API, "default")
    assert mint("--scope", "use", "--run", "mine") == Claims(Scope.USE, "default", "mine")
    assert mint("--scope", "use", "--tenant", "ours") == Claims(Scope.USE, "ours")
    refused = CliRunner().invoke(app, ["token", "--scope", "spans"], env={"LEYDEN_SIGNING_KEY": signing_key})
    assert refused.exit_code == 2


def greet(name: str, loud: bool = False) -> None:
    typer.echo(f"hello {name}{'!' if loud else ''}")
    if name == "nobody":
        raise typer.Exit(3)


def test_commands_of_other_packages_get_their_options_and_keep_their_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "greeting", ModuleType("greeting"))
    sys.modules["greeting"].greet = greet  # type: ignore[attr-defined]
    points = [EntryPoint("greet", "greeting:greet", "x"), EntryPoint("lost", "leyden_no_such_package:run", "x")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    host = typer.Typer(cls=Guarded)
    host.callback()(lambda: None)
    plugins.add_to(host)
    run = CliRunner().invoke
    assert run(host, ["greet", "you", "--loud"]).output == "hello you!\n"
    assert "--loud" in run(host, ["greet", "--help"]).output
    assert run(host, ["greet", "nobody"]).exit_code == 3
    assert run(host, ["greet"]).exit_code == 2
    missing = run(host, ["lost"])
    assert missing.exit_code == 2 and "leyden[standalone]" in missing.output
