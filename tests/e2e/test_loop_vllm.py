"""The loop with a real vLLM serving the adapters."""

from pathlib import Path

import pytest

from leyden_agents.calculator.recipe import BASE_MODEL, MODEL_DIR
from support.loop import calls_in_store, deployed, small_spec, stored, train_small, violations
from support.servers import S3_KEY, S3_SECRET
from support.vllm import API_KEY, vllm_server

STEPS = 3


@pytest.mark.vllm
@pytest.mark.timeout(1200)
def test_a_few_steps(redis_url: str, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEYDEN_S3_ACCESS_KEY", S3_KEY)
    monkeypatch.setenv("LEYDEN_S3_SECRET_KEY", S3_SECRET)
    with (
        vllm_server(MODEL_DIR, BASE_MODEL, tmp_path) as replica,
        deployed(
            tmp_path / "data",
            redis_url=redis_url,
            store_url=s3_url,
            replica_url=replica,
            engine_api_key=API_KEY,
        ) as (deployment, _, client),
    ):
        result = train_small(client, small_spec(), STEPS, tmp_path, evaluate=8)
        assert result.version == STEPS
        assert client.run(result.run).summary.version_ready == STEPS, "vLLM proved every version"
        assert violations(deployment, result.run) == []
        assert len(calls_in_store(stored(deployment), result.run)) >= STEPS * 16
        for view in result.final.versions:
            # On-policy: the learner's logprobs are those that vLLM sampled with.
            assert view.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
