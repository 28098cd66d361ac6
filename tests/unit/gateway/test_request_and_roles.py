"""Model names become roles; an agent's request becomes what the run imposes."""

import json

import pytest

from leyden_contracts import RunSpec
from leyden_gateway.errors import ApiError
from leyden_gateway.plan import Plan
from leyden_gateway.protocols.chat import Chat
from leyden_gateway.replicas import Patience
from leyden_gateway.roles import Roles
from leyden_gateway.sampling import imposed
from leyden_gateway.upstream import upstream_body


def spec(**changes: object) -> RunSpec:
    values = {"id": "r", "base_model": "tiny", "agent": "a:b", "grader": "a:b", **changes}
    return RunSpec.model_validate(values)


def sent(run: RunSpec, role: str = "policy", purpose: str = "train", **ask: object) -> dict:
    asked = Chat().read(json.dumps({"model": "m", "messages": [], **ask}).encode())
    sampled = imposed(asked, run, role, purpose)
    patience = Patience(1, "x")
    plan = Plan(run, role, 0, sampled.temperature, sampled.fields, asked.endpoint, asked.logprobs, "e", patience)
    return json.loads(upstream_body(plan, stream=False))


def test_policy_is_the_trained_role():
    roles = Roles(spec(roles={"writer": {}, "checker": {"trained": False, "models": ["gpt-4o"]}}))
    names = ("policy", "writer", "policy/writer", "checker", "policy/checker", "gpt-4o")
    assert [roles.role(name) for name in names] == ["writer"] * 3 + ["checker"] * 3


def test_policy_means_nothing_where_several_roles_are_trained():
    with pytest.raises(ApiError, match=r"`policy/checker`"):
        Roles(spec(roles={"writer": {}, "checker": {}})).role("policy")


def test_a_role_that_is_named_policy_is_meant_by_policy():
    roles = Roles(spec(roles={"writer": {}, "policy": {"trained": False}}))
    assert roles.role("policy") == "policy"


def test_the_base_models_name_is_no_role():
    with pytest.raises(ApiError, match=r"`policy`, `policy/policy`") as caught:
        Roles(spec()).role("tiny")
    assert caught.value.status == 404


def test_what_the_gateway_does_not_need_stays_as_sent():
    tools = [{"type": "function", "function": {"name": "f"}}]
    extra = {
        "tools": tools,
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "chat_template_kwargs": {"a": 1},
    }
    body = sent(spec(), **extra)
    assert {name: body[name] for name in extra} == extra
    assert (body["stream"], body["logprobs"], body["return_token_ids"]) == (False, True, True)
    assert not {"n", "stream_options", "max_completion_tokens"} & body.keys()


def test_nothing_the_agent_says_turns_the_record_off():
    body = sent(
        spec(), logprobs=False, return_token_ids=False, include_reasoning=False, stream=True, stream_options={}, n=1
    )
    assert (body["stream"], body["logprobs"], body["return_token_ids"]) == (False, True, True)
    assert not {"include_reasoning", "stream_options", "n"} & body.keys()


@pytest.mark.parametrize("purpose", ["train", "eval"])
def test_the_run_decides_how_a_trained_role_samples(purpose):
    run = spec(sampling={"temperature": 0.7, "eval_temperature": 0.1, "max_tokens": 50})
    body = sent(run, purpose=purpose, temperature=2, top_p=0.1, top_k=1, seed=3, frequency_penalty=1, max_tokens=99)
    assert body["temperature"] == (0.7 if purpose == "train" else 0.1)
    assert (body["top_p"], body["max_tokens"]) == (1.0, 50)
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (0, 0, 1)
    assert not {"seed", "frequency_penalty"} & body.keys()


def test_a_frozen_role_samples_as_the_agent_says():
    run = spec(roles={"policy": {}, "checker": {"trained": False}}, sampling={"max_tokens": 5})
    body = sent(run, "checker", temperature=0.2, top_p=0.1, max_completion_tokens=99)
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.2, 0.1, 99)
    assert "max_tokens" not in sent(run, "checker")


@pytest.mark.parametrize(
    ("wish", "given"), [(None, 1.0), (0.1, 0.5), (0.8, 0.8), (2.0, 1.2)], ids=["none", "low", "within", "high"]
)
def test_a_run_may_leave_the_temperature_to_the_agent_within_bounds(wish, given):
    run = spec(sampling={"temperature": {"low": 0.5, "high": 1.2}, "eval_top_p": {"low": 0.5, "high": 1}})
    asked = {} if wish is None else {"temperature": wish}
    assert sent(run, **asked)["temperature"] == given
    assert sent(run, purpose="eval", top_p=0.2)["top_p"] == 0.5
    assert sent(run, top_p=0.2)["top_p"] == 1


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0},
        {"temperature": {"low": 0, "high": 1}},
        {"temperature": {"low": 1, "high": 0.5}},
        {"eval_temperature": 2.1},
        {"top_p": 0.9},
        {"eval_top_p": 1.1},
        {"eval_top_p": {"low": 0, "high": 1}},
    ],
)
def test_sampling_that_cannot_be_trained_on_is_refused(sampling):
    with pytest.raises(ValueError, match="sampling|low"):
        spec(sampling=sampling)


def test_the_length_of_evaluations_may_differ():
    run = spec(sampling={"max_tokens": 10, "eval_max_tokens": 90})
    assert sent(run)["max_tokens"] == 10
    assert sent(run, purpose="eval")["max_tokens"] == 90
    assert sent(run, purpose="eval", max_tokens=20)["max_tokens"] == 20


def test_a_role_by_header_by_agent_and_by_model():
    roles = Roles(spec(roles={"writer": {"agents": ["Author"]}, "checker": {"trained": False, "agents": ["Critic"]}}))
    assert roles.role("policy") == "writer"
    assert roles.role("policy", agent="Critic") == "checker"
    assert roles.role("policy", asked="writer", agent="Critic") == "writer"
    assert roles.role("checker", agent="Unknown") == "checker"
    with pytest.raises(ApiError, match="no role `boss`; it has `checker`, `writer`"):
        roles.role("policy", asked="boss")


def test_the_samples_of_a_seeded_call_differ():
    run = spec(roles={"policy": {}, "checker": {"trained": False}})
    asked = Chat().read(json.dumps({"model": "m", "messages": [], "seed": 5, "n": 3}).encode())
    plan = Plan(
        run, "checker", 0, 1.0, imposed(asked, run, "checker", "train").fields, asked.endpoint, False, "e", None
    )
    assert [json.loads(upstream_body(plan.sample(i), False))["seed"] for i in range(3)] == [5, 6, 7]


async def test_patience_ends_and_starts_with_the_first_pause():
    patience = Patience(0.1, "x")
    with pytest.raises(ApiError, match=r"no replica served x within 0.1 s"):
        for _ in range(20):
            await patience.pause()
