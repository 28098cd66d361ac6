"""Tasks are repeated until there are enough groups, each pass in an order of its own that the seed decides."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from leyden_client.evaluate import EvalResult
from leyden_client.training import result_table, upload_passes
from leyden_contracts import RunSpec, TaskInput

TASKS = [TaskInput(input=n) for n in range(10)]


class Api:
    def __init__(self) -> None:
        self.uploads: dict[str, list[Any]] = {}

    def upload_tasks(self, run: str, tasks: Sequence[TaskInput], key: str) -> None:
        self.uploads[key] = [task.input for task in tasks]


def uploaded(groups: int, **changes: Any) -> list[list[Any]]:
    spec = RunSpec.model_validate({"id": "mine", "base_model": "t", "agent": "a:b", "grader": "a:c", **changes})
    api = Api()
    upload_passes(api, "mine", TASKS, groups, spec)  # type: ignore[arg-type]
    return list(api.uploads.values())


def test_every_pass_holds_every_task_once() -> None:
    (order,) = uploaded(25)
    first, second, last = order[:10], order[10:20], order[20:]
    assert sorted(first) == sorted(second) == list(range(10)) and len(last) == 5
    assert first != second
    assert uploaded(25) == [order] != uploaded(25, seed=1)


def test_many_episodes_travel_in_several_uploads_with_keys_of_their_own() -> None:
    parts = uploaded(1000, group_size=256)
    assert len(parts) == 6 and max(len(part) for part in parts) * 256 <= 50_000
    assert [task for part in parts for task in part] == uploaded(1000)[0]


def test_the_table_has_a_row_for_each_version_and_a_column_for_each_tag() -> None:
    console = Console(width=120, record=True)
    before = EvalResult(0, 0.25, 16, 2, {"length=short": (0.25, 16)})
    console.print(result_table([before, EvalResult(9, 0.9, 18, 0, {"length=long": (0.9, 18)})]))
    text = console.export_text()
    for part in ("0.250 ± 0.108", "0.250 (16)", "0.900 (18)", "length=long"):
        assert part in text
