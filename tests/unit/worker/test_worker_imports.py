"""How agents are imported: once where that is right, in each attempt where it is not, and what is said when neither."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from leyden_worker.environment import Environments
from leyden_worker.parent_link import ImportFailed
from leyden_worker.warm_pool import WarmPool


async def call(pool: WarmPool, reference: str, value: Any = None, run: str = "run", **env: str) -> Any:
    async with pool.borrow(run, "agent", reference) as parent:
        end = await parent.call([value], 20, env=env)
    assert end.report is not None, end
    return end.report.get("value", end.report)


async def test_a_module_is_imported_once_for_all_attempts(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "warm.py").write_text(
        "import os\nMODEL = os.environ['OPENAI_MODEL']\nIMPORTER = os.getpid()\n"
        "def agent(value): return [MODEL, IMPORTER, os.getppid()]\n"
    )
    model, importer, parent = await call(pool, "warm:agent")
    assert (model, importer) == ("policy", parent)


async def test_a_client_made_at_import_gets_the_attempts_own_key(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(
        "import os, openai\nclient = openai.OpenAI()\nIMPORTER = os.getpid()\n"
        "def agent(value): return [client.api_key, str(client.base_url), IMPORTER == os.getpid()]\n"
    )
    for key in ("first", "second"):
        found = await call(pool, "eager:agent", OPENAI_API_KEY=key)
        assert found == [key, "http://gateway:8100/v1/", True]


async def test_ollamas_own_functions_send_the_attempts_own_key(pool: WarmPool, tmp_path: Path) -> None:
    """`import ollama` makes the client behind `ollama.chat`, which keeps the key of that moment."""
    (tmp_path / "llama.py").write_text(
        "import ollama\ndef agent(value): return dict(ollama.chat.__self__._client.headers)['authorization']\n"
    )
    for key in ("first", "second"):
        assert await call(pool, "llama:agent", OLLAMA_API_KEY=key) == f"Bearer {key}"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"])
async def test_a_key_that_a_module_keeps_is_the_attempts_own(pool: WarmPool, tmp_path: Path, name: str) -> None:
    (tmp_path / "keeper.py").write_text(f"import os\nKEY = os.environ['{name}']\ndef agent(value): return KEY\n")
    for key in ("first", "second"):
        assert await call(pool, "keeper:agent", **{name: key}) == key


async def test_what_an_eager_module_needs_from_elsewhere_is_still_imported_once(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "timed.py").write_text(
        "import time; begun = time.perf_counter()\nimport openai\nimport os\nos.getenv('TRACEPARENT')\n"
        "took = time.perf_counter() - begun\ndef agent(value): return [took, os.getpid() == IMPORTER]\n"
        "IMPORTER = os.getpid()\n"
    )
    took, late = await call(pool, "timed:agent")
    assert late
    assert took < 0.1


async def test_an_eager_helper_module_beside_the_agent_counts_too(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "llm.py").write_text("import os\nKEY = os.getenv('OPENAI_API_KEY')\n")
    (tmp_path / "outer.py").write_text("from helpers.llm import KEY\ndef agent(value): return KEY\n")
    assert await call(pool, "outer:agent", OPENAI_API_KEY="mine") == "mine"


async def test_what_a_module_puts_into_the_environment_stays(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "dotenv_like.py").write_text(
        "import os\nos.environ['TOOL_KEY'] = 'from .env'\ndef agent(value): return os.environ['TOOL_KEY']\n"
    )
    assert await call(pool, "dotenv_like:agent") == "from .env"


async def test_what_an_import_prints_or_reads_does_not_disturb(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import sys\nprint('{\"id\": 1}')\nREAD = sys.stdin.read()\ndef agent(value): return READ\n"
    )
    assert await call(pool, "noisy:agent") == ""


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere_to_be_found:agent", "add that directory to PYTHONPATH"),
        ("odd_agents:ecko", "it has `chatters`"),
        ("needs_more:agent", "needs the module `not_installed_here`"),
        ("broken:agent", "raised ZeroDivisionError"),
        ("leaves:agent", "ended with exit code 7"),
    ],
)
async def test_what_cannot_be_imported_is_told(pool: WarmPool, tmp_path: Path, reference: str, said: str) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_here\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaves.py").write_text("import os; os._exit(7)\n")
    with pytest.raises(ImportFailed, match=said):
        await call(pool, reference)


async def test_a_refusal_is_remembered_for_a_moment_and_then_tried_again(
    pool: WarmPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "mended.py"
    module.write_text("1 / 0\n")
    with pytest.raises(ImportFailed):
        await call(pool, "mended:agent")
    begun = time.monotonic()
    for _ in range(20):
        with pytest.raises(ImportFailed):
            await call(pool, "mended:agent")
    assert time.monotonic() - begun < 0.1, "each refusal started an interpreter"
    module.write_text("def agent(value): return 'mended'\n")
    monkeypatch.setattr("leyden_worker.warm_pool._REFUSAL_S", 0)
    assert await call(pool, "mended:agent") == "mended"


async def test_a_new_run_sees_changed_code_and_the_old_one_does_not(pool: WarmPool, tmp_path: Path) -> None:
    module = tmp_path / "evolving.py"
    module.write_text("def agent(value): return 'one'\n")
    assert await call(pool, "evolving:agent", run="a") == "one"
    module.write_text("def agent(value): return 'two, longer'\n")
    assert await call(pool, "evolving:agent", run="a") == "one"
    assert await call(pool, "evolving:agent", run="b") == "two, longer"


async def test_an_import_that_hangs_is_ended(environments: Environments, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("import time\ntime.sleep(1000)\n")
    pool = WarmPool(environments, [tmp_path], import_timeout_s=0.5, size=8)
    with pytest.raises(ImportFailed, match=r"took more than 0\.5 s"):
        await call(pool, "server:agent")
    await pool.close()


async def test_unused_parents_are_ended_the_oldest_first(environments: Environments, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"agent_{name}.py").write_text("import os\ndef agent(value): return os.getppid()\n")
    pool = WarmPool(environments, [tmp_path], import_timeout_s=30, size=2)
    pids = [await call(pool, f"agent_{name}:agent") for name in "abc"]
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False, True, True]
    assert await call(pool, "agent_b:agent") == pids[1]
    await pool.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def test_of_many_that_wait_for_an_import_one_may_leave(pool: WarmPool, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time, os\ntime.sleep(0.5)\ndef agent(value): return os.getppid()\n")
    calls = [asyncio.create_task(call(pool, "slow:agent")) for _ in range(5)]
    await asyncio.sleep(0.1)
    calls[0].cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    assert len(set(ended[1:])) == 1
