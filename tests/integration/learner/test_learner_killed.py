"""kill -9 at each point of a learner's step: what is written is, byte for byte, what an uninterrupted run writes."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from leyden_contracts import RunSpec
from leyden_learner.checkpoint import committed
from leyden_ledger import Ledger
from leyden_ledger.check import check_run
from leyden_runtime.failpoints import POINTS
from support.learner_kills import ROLES, Scene, play_run, train, written
from support.learning import RUN, make_spec

STEPS = 3
FILES = 4
"""Of a version of one role."""
SHUFFLED = {"max_staleness": 1000, "control": "shuffled_rewards"}
"""So that the random numbers matter, and all groups can be played at once."""
SPECS = {
    "one role": make_spec(**SHUFFLED),
    "two roles": make_spec(roles={role: {} for role in ROLES}, **SHUFFLED),
}


def passages(name: str) -> dict[str, int]:
    """Return how often each point that a step passes is passed, in order."""
    roles = len(SPECS[name].trained_roles)
    times = {"learner.file": FILES * roles, "learner.followed": roles - 1}
    of_a_step = [one for one in POINTS if one.startswith("learner.") and not one.startswith("learner.start_")]
    return {point: count for point in of_a_step if (count := times.get(point, 1))}


def everywhere(name: str) -> list[str]:
    """Return a death at every passage of a step."""
    return [f"{point}=kill@{nth + 1}" for point, times in passages(name).items() for nth in range(times)]


@pytest.fixture
def scene(redis_url: str, tmp_path: Path, tiny_llama: Path) -> Scene:
    return Scene(redis_url, f"file://{tmp_path / 'killed'}", tiny_llama)


async def straight(ledger: Ledger, scene: Scene, spec: RunSpec, tmp_path: Path, broken: str = "") -> dict[str, object]:
    """Return what a learner writes that nobody kills."""
    twin = replace(scene, store_url=f"file://{tmp_path / 'straight'}")
    await play_run(ledger, twin, spec, STEPS, broken)
    assert train(twin) == 0
    return written(twin)


async def killed(ledger: Ledger, scene: Scene, spec: RunSpec, deaths: Sequence[str], broken: str = "") -> None:
    """Let one learner after the other die, the last one end, and the checker find nothing."""
    await play_run(ledger, scene, spec, STEPS, broken)
    for point in deaths:
        assert train(scene, point) == -signal.SIGKILL, point
    assert train(scene) == 0
    assert await check_run(ledger, scene.store(), RUN) == []


SECOND = "learner.consumed=kill@1"
"""The first step is over: what follows is resumed from a checkpoint."""


@pytest.mark.parametrize(
    ("name", "deaths"), [("one role", [SECOND, *everywhere("one role")]), ("two roles", everywhere("two roles"))]
)
async def test_a_learner_that_is_killed_at_every_point_of_a_step_writes_the_same_bytes(
    ledger: Ledger, scene: Scene, tmp_path: Path, name: str, deaths: list[str]
):
    expected = await straight(ledger, scene, SPECS[name], tmp_path)

    # Each dies a point further on. What follows a commit is passed again by the process after it.
    await killed(ledger, scene, SPECS[name], deaths)

    assert written(scene) == expected
    assert len(expected) == STEPS * len(SPECS[name].trained_roles) * (FILES + 1)


@pytest.mark.faults
@pytest.mark.parametrize(("name", "point"), [(name, point) for name in SPECS for point in passages(name)])
async def test_one_death_at_any_passage_of_any_step_changes_no_byte(
    ledger: Ledger, scene: Scene, tmp_path: Path, s3_url: str, name: str, point: str
):
    expected = await straight(ledger, scene, SPECS[name], tmp_path)
    for nth in range(1, STEPS * passages(name)[point] + 1):
        # The first on S3; a bucket for each would ask the server for more volumes than there are.
        place = replace(scene, store_url=s3_url if nth == 1 else f"file://{tmp_path / str(nth)}")
        await killed(ledger, place, SPECS[name], [f"{point}=kill@{nth}"])
        assert written(place) == expected, nth


@pytest.mark.parametrize(("broken", "infinite"), [("g2", 0), ("", 2)], ids=["nan", "infinite"])
async def test_a_step_that_is_not_finite_is_refused_for_good_however_often_it_dies(
    ledger: Ledger, scene: Scene, tmp_path: Path, broken: str, infinite: int
):
    spec, scene = make_spec(max_staleness=1000), replace(scene, infinite=infinite)
    expected = await straight(ledger, scene, spec, tmp_path, broken)
    deaths = [f"learner.{point}=kill@1" for point in ("gradients", "stepped", "written", "committed", "published")]

    await killed(ledger, scene, spec, [SECOND, *deaths], broken)

    assert written(scene) == expected
    one, two, three = committed(scene.store(), RUN, "policy")
    assert (two.skipped, two.trained_episodes) == (dict.fromkeys(["g2", "g3"], "not_finite"), [])
    assert two.files == one.files
    assert three.skipped == {}
    assert three.files["adapter_model.safetensors"] != two.files["adapter_model.safetensors"]
