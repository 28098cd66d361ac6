"""Several trained roles: one adapter each, one step for all, all or none."""

import math
from pathlib import Path

from leyden_learner.trainer import ADAPTER, Trainer
from support.learning import make_call, make_spec, make_trajectory

ROLES = {"writer": {}, "checker": {}, "judge": {"trained": False}}


def trainer(folder: Path, **spec) -> Trainer:
    return Trainer(make_spec(roles=ROLES, **spec), folder, "cpu")


def group(*roles: str, version: int = 0, **call):
    """Return a group of two episodes, in which each of `roles` makes a call."""
    return "a", [
        make_trajectory(
            "a",
            index,
            float(index),
            [
                make_call(f"a.{index}", number, role=role, response=(4 + index, 9), version=version, **call)
                for number, role in enumerate(roles, 1)
            ],
        )
        for index in (0, 1)
    ]


def adapters(of: Trainer) -> dict[str, bytes]:
    return {role: of.files(role)[ADAPTER] for role in of.roles}


def test_each_role_has_an_adapter_of_its_own(tiny_llama: Path):
    one = trainer(tiny_llama)
    assert one.roles == ("checker", "writer")
    before = adapters(one)
    metrics = one.step(one.build_batch([group("writer", "judge")]))
    after = adapters(one)
    assert after["writer"] != before["writer"] and after["checker"] == before["checker"]
    assert (metrics["writer"]["transitions"], metrics["checker"]["transitions"]) == (2, 0)
    assert "loss" in metrics["writer"] and "loss" not in metrics["checker"]


def test_a_role_learns_what_it_would_learn_alone(tiny_llama: Path):
    both, alone = trainer(tiny_llama), Trainer(make_spec(roles={"writer": {}}), tiny_llama, "cpu")
    both.step(both.build_batch([group("writer", "checker")]))
    alone.step(alone.build_batch([group("writer", "checker")]))
    assert adapters(both)["writer"] == adapters(alone)["writer"]


def test_one_role_that_is_not_finite_holds_back_the_whole_step(tiny_llama: Path):
    one = trainer(tiny_llama)
    before = adapters(one)
    _, whole = group("writer", "checker")
    broken = [
        episode.model_copy(
            update={
                "transitions": tuple(
                    call
                    if call.role == "writer"
                    else make_call(call.episode, 2, role="checker", response=(5, 9), logprobs=(math.nan, -1.0))
                    for call in episode.transitions
                )
            }
        )
        for episode in whole
    ]
    metrics = one.step(one.build_batch([("a", broken)]))
    assert {found["refused"] for found in metrics.values()} == {1.0}
    assert adapters(one) == before


def test_training_goes_on_exactly_after_a_restore(tiny_llama: Path):
    straight, halves = trainer(tiny_llama), trainer(tiny_llama)
    for one in (straight, halves):
        one.step(one.build_batch([group("writer", "checker")]))
    resumed = trainer(tiny_llama)
    resumed.restore(1, {role: halves.files(role) for role in halves.roles})
    for one in (straight, resumed):
        one.step(one.build_batch([group("writer", "checker", version=1)]))
    for role in straight.roles:
        assert straight.files(role) == resumed.files(role)
