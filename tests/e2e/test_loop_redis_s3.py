"""The loop on a real Redis and a real S3 server, by settings alone."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from leyden_agents.calculator.tasks import eval_tasks
from leyden_client import LeydenClient
from leyden_contracts import AdapterManifest, EvaluationRules, TaskInput
from leyden_storage.keys import manifest_key
from support.loop import calls_in_log, calls_in_store, deployed, small_spec, stored, train_small, violations
from support.prometheus import prometheus, query
from support.servers import S3_KEY, S3_SECRET, wait_for

STEPS = 3
DASHBOARD = Path(__file__).parents[2] / "infra/grafana/leyden.json"


def dashboard_queries() -> list[str]:
    """Return every query of the dashboard, with all runs chosen."""
    found = re.findall(r'"expr": (".*"),?$', DASHBOARD.read_text(), re.MULTILINE)
    return [json.loads(text).replace("$run", ".*") for text in found]


def evaluated(client: LeydenClient, run: str) -> bool:
    versions = client.versions(run).versions
    return len(versions) == STEPS + 1 and all(version.evaluation for version in versions)


def test_the_loop_turns(redis_url: str, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEYDEN_S3_ACCESS_KEY", S3_KEY)
    monkeypatch.setenv("LEYDEN_S3_SECRET_KEY", S3_SECRET)
    log = tmp_path / "calls.jsonl"
    with (
        ExitStack() as stack,
        deployed(tmp_path / "data", redis_url=redis_url, store_url=s3_url, call_log=log) as (deployment, _, client),
    ):
        # Redis is not ours to scrape; every other port is a service's.
        targets = {name: port for name, port in deployment.ports.items() if name != "redis"}
        monitoring = stack.enter_context(prometheus(tmp_path, targets))
        spec = small_spec().model_copy(update={"evaluation": EvaluationRules(every=1)})
        result = train_small(client, spec, STEPS, tmp_path, evaluate=8)
        assert result.version == STEPS
        assert result.final.summary.state == "finished"
        assert result.final.summary.counts["train:succeeded"] == STEPS * 4 * 4
        assert violations(deployment, result.run) == []

        # After the run's end: replicas load each version once more for it.
        held_out = [TaskInput.model_validate(row) for row in eval_tasks(12, seed=5)]
        client.upload_tasks(result.run, held_out, purpose="held_out")
        wait_for(lambda: evaluated(client, result.run), 60, "the evaluations")
        versions = client.versions(result.run)
        assert {version.evaluation.counts["succeeded"] for version in versions.versions if version.evaluation} == {12}
        best = max(versions.versions, key=lambda one: (one.evaluation.score, -one.version))  # type: ignore[union-attr]
        wait_for(lambda: client.versions(result.run).promoted == best.version, 60, "the promotion")
        kept = {best.version, STEPS}
        names = {f"{result.run}--policy--v{version}" for version in kept if version}
        wait_for(lambda: names <= set(client.replicas()[0]["ready"]), 60, "the promoted version")
        assert violations(deployment, result.run) == []

        store = stored(deployment)
        manifests = [
            AdapterManifest.model_validate_json(store.get(manifest_key(result.run, "policy", version)))
            for version in range(1, STEPS + 1)
        ]
        assert sum(len(manifest.groups) for manifest in manifests) == STEPS * 4

        # Must hold for every stored transition: exactly what the engine made, bit for bit.
        transitions, logged = calls_in_store(store, result.run), calls_in_log(log)
        assert len(transitions) >= STEPS * 16
        assert transitions == {name: logged[name] for name in transitions}

        queries = dashboard_queries()
        assert len(queries) >= 8
        for expression in queries:
            wait_for(lambda expression=expression: query(monitoring, expression) != [], 60, expression)
