"""The object store answers 503, or does what was asked and its reply is lost, while tasks are accepted."""

import secrets
from pathlib import Path

import pytest

from support.faults import CALLS, fleet_in
from support.faults_s3 import troubled_s3
from support.servers import S3_KEY, S3_SECRET

UPLOADS, TASKS = 8, 4


@pytest.mark.timeout(200)
def test_503s_and_lost_replies_while_tasks_are_accepted(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"leyden-{secrets.token_hex(4)}"
    keys = {"LEYDEN_S3_ACCESS_KEY": S3_KEY, "LEYDEN_S3_SECRET_KEY": S3_SECRET}
    with (
        troubled_s3(s3_endpoint, seed=5) as s3,
        fleet_in(
            tmp_path,
            {**keys, "LEYDEN_STORE_URL": f"s3://{bucket}?endpoint={s3.endpoint}"},
            store_url=f"s3://{bucket}?endpoint={s3_endpoint}",
        ) as fleet,
    ):
        run = fleet.create(max_attempts=20)
        s3.refuse, s3.drop = 0.25, 0.25
        for number in range(UPLOADS):
            assert fleet.upload(run, [CALLS] * TASKS, key=f"batch-{number}") == TASKS
        # Worker and collector have the same trouble, until here.
        s3.refuse = s3.drop = 0.0
        assert fleet.outcome(run, UPLOADS * TASKS, 90) == {"succeeded": UPLOADS * TASKS}
        assert len(fleet.episodes(run)) == UPLOADS * TASKS
        assert s3.did["refused"] > 3
        assert s3.did["dropped PUT"] > 3
