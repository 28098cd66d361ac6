"""What a start learns from, and that it learns: by hand-checked losses on a tiny model."""

import json
from pathlib import Path

import pytest
import torch

from leyden_contracts import DpoStart, RunSpec, SftStart, TextCall, Verdict
from leyden_learner.start.chat import Chat
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.lesson import Lesson
from leyden_learner.start.lines import units_of_lines
from leyden_learner.start.losses import dpo_shares, sft_shares
from leyden_learner.start.stored import Reading, examples, pairs
from leyden_learner.start.units import Example, Pair, Unit, Units, fitting, make_sample
from leyden_learner.trainer import Trainer
from support.learning import VOCABULARY, make_call, make_spec, make_trajectory
from support.tiny_model import make_model

PROMPT = (1, 2, 3)
SFT, DPO = SftStart(kind="sft", learning_rate=1e-2), DpoStart(kind="dpo", learning_rate=1e-2)


def spec_of(start: dict) -> RunSpec:
    return RunSpec.model_validate(make_spec().model_dump(mode="json") | {"start": start})


def example(*turns: tuple[tuple, tuple], role: str = "policy") -> Example:
    return Example(role, "line 1", tuple(make_sample(role, prompt, answer) for prompt, answer in turns))


def pair(chosen: tuple, rejected: tuple) -> Pair:
    sides = ((make_sample("policy", PROMPT, one),) for one in (chosen, rejected))
    return Pair("policy", "line 1", *sides)


def logprob(trainer: Trainer, prompt: tuple, answer: tuple, adapter: bool = True) -> float:
    return sum(trainer.policy.sequence_logprobs([*prompt, *answer], adapter)[len(prompt) - 1 :])


@pytest.fixture
def trainer(tiny_llama: Path) -> Trainer:
    return Trainer(make_spec(), tiny_llama, "cpu")


@pytest.mark.parametrize("limit", [8192, 64, 8])
def test_the_supervised_loss_is_the_mean_over_all_that_was_said(trainer: Trainer, limit: int) -> None:
    turns = ((PROMPT, (4, 5)), ((*PROMPT, 4, 5, 6, 7), (8,)), ((9,), (10, 11, 12)))
    batch = [example(*turns[:2]), example(turns[2])]

    loss = sum(share.item() for share, _ in sft_shares(trainer.policy, batch, limit))

    assert loss == pytest.approx(-sum(logprob(trainer, *turn) for turn in turns) / 6, abs=1e-5)


@pytest.mark.parametrize("limit", [8192, 8])
def test_the_preference_loss_is_that_of_the_paper(trainer: Trainer, limit: int) -> None:
    batch = [pair((4, 5), (6,)), pair((7,), (8, 9, 10))]
    lesson = Lesson(trainer, "policy", batch, DPO)
    lesson.step()

    found = list(dpo_shares(trainer.policy, batch, limit, DPO))

    def margin(one: Pair) -> float:
        def gain(side: tuple) -> float:
            answer = tuple(side[0].response.tolist())
            return logprob(trainer, PROMPT, answer) - logprob(trainer, PROMPT, answer, adapter=False)

        return DPO.beta * (gain(one.chosen) - gain(one.rejected))

    margins = torch.tensor([margin(one) for one in batch])
    assert sum(loss.item() for loss, _ in found) == pytest.approx(-margins.sigmoid().log().mean().item(), abs=1e-5)
    assert sum(measures["margin"] for _, measures in found) == pytest.approx(margins.mean().item(), abs=1e-5)
    assert len(found) == (2 if limit == 8 else 1)


def test_the_sides_of_a_pair_may_have_several_turns(trainer: Trainer) -> None:
    turns = ((PROMPT, (4, 5)), ((*PROMPT, 4, 5, 6), (7,)))
    other = ((PROMPT, (8,)),)
    batch = [Pair("policy", "x", example(*turns).samples, example(*other).samples), pair((4,), (5,))]
    Lesson(trainer, "policy", [pair((4, 5), (8,))], DPO).step()

    (_, measures), _ = list(dpo_shares(trainer.policy, batch, 15, DPO))

    def gain(turns: tuple) -> float:
        return sum(logprob(trainer, *turn) - logprob(trainer, *turn, adapter=False) for turn in turns)

    assert 2 * measures["margin"] == pytest.approx(DPO.beta * (gain(turns) - gain(other)), abs=1e-5)


def test_supervised_learning_lowers_the_loss(trainer: Trainer) -> None:
    lesson = Lesson(
        trainer,
        "policy",
        [example((PROMPT, (4 + i, 9))) for i in range(3)],
        SFT.model_copy(update={"epochs": 12, "batch_size": 2}),
    )
    while not lesson.done:
        lesson.step()

    metrics = lesson.metrics()
    assert (metrics["steps"], metrics["samples"], metrics["tokens"], metrics["refused"]) == (24, 3, 72, 0)
    assert metrics["loss"] < 0.6 * metrics["loss_first"]
    assert logprob(trainer, PROMPT, (4, 9)) > logprob(trainer, PROMPT, (4, 9), adapter=False) + 1


def test_preferences_are_learned(trainer: Trainer) -> None:
    units: list[Unit] = [pair((4 + i, 9), (20 + i, 9)) for i in range(4)]
    lesson = Lesson(trainer, "policy", units, DPO.model_copy(update={"steps": 10}))
    while not lesson.done:
        lesson.step()

    metrics = lesson.metrics()
    assert (metrics["steps"], metrics["accuracy"]) == (10, 1)
    assert metrics["margin"] > 0
    assert metrics["loss"] < metrics["loss_first"] == pytest.approx(0.6931, abs=1e-4)


def test_a_broken_step_leaves_the_weights_and_is_counted(trainer: Trainer) -> None:
    lesson = Lesson(trainer, "policy", [example((PROMPT, (4,)))], SFT)
    before = trainer.files("policy")
    with torch.no_grad():
        head = trainer.policy._peft.get_output_embeddings().weight
        sound, head[0, 0] = head[0, 0].item(), float("nan")
    lesson.step()
    with torch.no_grad():
        head[0, 0] = sound

    assert trainer.files("policy") == before
    assert lesson.metrics()["refused"] == 1


def test_each_role_learns_its_own(tiny_llama: Path) -> None:
    trainer = Trainer(make_spec(roles={"checker": {}, "writer": {}}), tiny_llama, "cpu")
    untouched = trainer.files("checker")

    lesson = Lesson(trainer, "writer", [example((PROMPT, (4,)), role="writer")], SFT)
    assert Lesson(trainer, "checker", [], SFT).done
    lesson.step()

    assert trainer.files("checker") == untouched
    assert trainer.files("writer") != untouched


def test_lines_are_learned_by_the_roles_they_name(tmp_path: Path) -> None:
    chat = Chat.load(make_model(tmp_path))
    lines = [{"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "c", "role": "writer"}]

    found = units_of_lines((json.dumps(line).encode() for line in lines), "sft", chat, ["checker", "writer"])

    assert [(unit.role, len(unit.samples)) for unit in found.units] == [("checker", 1), ("writer", 1), ("writer", 1)]
    chat._tokenizer.chat_template = None
    talk = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    with pytest.raises(StartRefused, match="line 1 of the stored data: the base model has no chat template"):
        units_of_lines([json.dumps(talk).encode()], "sft", chat, ["policy"])


def test_what_is_too_long_is_left_out_or_refused() -> None:
    short, long = example((PROMPT, (4,))), example((PROMPT, (4,)), ((*PROMPT, 4, 5), (6, 7)))
    found = Units([short, long])

    assert fitting(found, 7, None).units == [short, long]
    kept = fitting(found, 7, 6)
    assert (kept.units, kept.dropped) == ([short], {"too_long": 1})
    with pytest.raises(StartRefused, match="line 1 has 7 tokens, but the model has 6 positions"):
        fitting(found, 6, None)
    with pytest.raises(StartRefused, match=r"`start.max_length` is 8"):
        fitting(found, 6, 8)
    with pytest.raises(StartRefused, match=r"no data is left to learn from \(too_long: 2\)"):
        fitting(found, None, 2)


def test_of_a_run_good_training_episodes_are_learned_with_their_tokens() -> None:
    calls = [make_call("g.0", 1), make_call("g.0", 2, role="critic"), make_call("g.0", 3, response=(7,), temperature=0)]
    there = [
        make_trajectory("g", 0, 1.0, calls),
        make_trajectory("g", 1, 0.0),
        make_trajectory("g", 2, 1.0, purpose="eval"),
        make_trajectory("g", 3, 1.0, verdict=Verdict.INCOMPLETE),
        make_trajectory("g", 4, 1.0, [make_call("g.4", response=(VOCABULARY,))]),
        make_trajectory("g", 5, 1.0, [make_call("g.5", role="critic")]),
    ]
    spec = spec_of({"kind": "sft", "run": "old"})

    found = examples(there, Reading(spec, None, VOCABULARY), 0.5)

    (only,) = found.units
    assert [(one.tokens.tolist(), one.prompt_length) for one in only.samples] == [
        ([1, 2, 3, 4, 5], 3),
        ([1, 2, 3, 7], 3),
    ]
    assert found.dropped == {"low_reward": 1, "incomplete": 1, "untrainable": 1, "no_trained_calls": 1}


def test_text_only_episodes_are_learned_by_the_role_of_their_agent(tmp_path: Path) -> None:
    chat = Chat.load(make_model(tmp_path))
    shown = json.dumps(
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"}, {"role": "user", "content": "r"}]
    )
    reply = json.dumps([{"role": "assistant", "content": "new"}])
    texts = [
        TextCall(span=f"{i:016x}", agent=agent, messages=shown, reply=reply)
        for i, agent in enumerate(("Scribe", "Other"))
    ]
    there = [make_trajectory("g", 0, 1.0, [], verdict=Verdict.TEXT_ONLY, texts=tuple(texts))]
    broken = [
        make_trajectory("g", 0, 1.0, [], verdict=Verdict.TEXT_ONLY, texts=(texts[0].model_copy(update={"reply": "]"}),))
    ]
    alone = spec_of({"kind": "sft", "run": "old"})
    several = make_spec(roles={"checker": {}, "writer": {"agents": ["Scribe"]}})

    assert [len(unit.samples) for unit in examples(there, Reading(alone, chat, 300), None).units] == [2]
    found = examples(there, Reading(several, chat, 300), None)
    assert [(unit.role, len(unit.samples)) for unit in found.units] == [("writer", 1)]
    assert found.dropped == {"no_trained_calls": 1}
    assert examples(broken, Reading(alone, chat, 300), None).dropped == {"unreadable_text": 1}
    assert examples(there, Reading(alone, None, 300), None).dropped == {"text_only": 1}


def test_pairs_are_of_one_group_and_by_reward() -> None:
    def group(name: str, *rewards: float) -> list:
        answers = ([make_call(f"{name}.{i}", response=(4 + i, 9))] for i in range(len(rewards)))
        return [
            make_trajectory(name, i, one, calls) for i, (one, calls) in enumerate(zip(rewards, answers, strict=True))
        ]

    same = [make_trajectory("d", i, float(i), [make_call(f"d.{i}")]) for i in range(2)]
    there = [*group("a", 0.0, 1.0, 0.5), *group("b", 1.0, 1.0), *same]
    spec = spec_of({"kind": "dpo", "run": "old"})
    reading = Reading(spec, None, VOCABULARY)

    found = pairs(there, reading, DpoStart(kind="dpo", run="old"))

    (only,) = found.units
    assert isinstance(only, Pair)
    assert (only.chosen[0].response.tolist(), only.rejected[0].response.tolist()) == ([5, 9], [4, 9])
    assert found.dropped == {"groups_without_a_pair": 1, "equal_answers": 1}
    assert len(pairs(there, reading, DpoStart(kind="dpo", run="old", pairing="every")).units) == 3
    assert len(pairs(there, reading, DpoStart(kind="dpo", run="old", pairing="every", margin=0.5)).units) == 1
