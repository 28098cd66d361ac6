"""OpenAI's text completions: what is read, what is refused, what is written."""

import json

import pytest

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.completions import Completions
from support.protocols import read, reply, streamed

SHOWN = {"tokens": ["hi"], "token_logprobs": [-0.5, -1.5], "top_logprobs": [{}], "text_offset": [0]}


@pytest.mark.parametrize(
    ("given", "asked"), [("x", "x"), ([1, 2], [1, 2]), (["x"], "x"), ([[1, 2]], [1, 2]), ("", ""), ([0], [0])]
)
def test_one_prompt_is_read(given, asked):
    ask = read(Completions(), prompt=given)
    assert (ask.fields["prompt"], ask.endpoint) == (asked, "completions")


@pytest.mark.parametrize(
    "given", [["a", "b"], [[1], [2]], [], [[]], [True], [-1], [1.5], [2**31], [1, "a"], [None], 5, {}, None]
)
def test_other_prompts_are_refused(given):
    with pytest.raises(ApiError, match="prompt") as caught:
        read(Completions(), prompt=given)
    assert caught.value.status == 400


def test_several_prompts_are_refused_with_advice():
    with pytest.raises(ApiError, match="several prompts: send one request for each"):
        read(Completions(), prompt=["a", "b"])


@pytest.mark.parametrize(
    "field",
    [{"echo": True}, {"suffix": "x"}, {"best_of": 2}, {"logprobs": 21}, {"logprobs": -1}, {"prompt_embeds": "x"},
     {"logprobs": True}, {"n": 0}, {"n": 17}, {"max_tokens": 0}, {"seed": "x"}],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(field):
    with pytest.raises(ApiError, match=next(iter(field))) as caught:
        read(Completions(), prompt="x", **field)
    assert caught.value.status == 400


def test_what_says_nothing_is_dropped_and_the_rest_is_passed_on():
    nothing = {"echo": False, "suffix": None, "best_of": 2, "logprobs": None, "seed": None, "return_token_ids": False}
    ask = read(Completions(), prompt="x", n=2, stop=["a"], user="u", **nothing)
    passed = {name: json.loads(bytes(value)) for name, value in ask.fields.items() if name in ("stop", "user")}
    assert passed == {"stop": ["a"], "user": "u"}
    assert set(ask.fields) == {"prompt", "stop", "user"}
    assert (ask.samples, ask.logprobs) == (2, False)


@pytest.mark.parametrize("count", [0, 3])
def test_logprobs_are_shown_if_asked_for(count):
    ask = read(Completions(), prompt="x", logprobs=count)
    assert (ask.logprobs, ask.fields["logprobs"]) == (True, count)


def test_a_whole_answer():
    ask = read(Completions(), prompt="x", n=2, logprobs=0)
    replies = [reply(text=text, logprobs=SHOWN, show_logprobs=True) for text in ("a", "")]
    assert json.loads(Completions().answer(ask, replies)) == {
        "id": "c1",
        "object": "text_completion",
        "created": 7,
        "model": "m",
        "choices": [
            {"index": index, "text": text, "logprobs": SHOWN, "finish_reason": "stop"}
            for index, text in enumerate(("a", ""))
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6},
    }


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_adds_up_to_the_text(usage):
    ask = read(Completions(), prompt="x", stream=True, stream_options={"include_usage": usage})
    chunks = streamed(Completions(), ask, reply(text="hi there", logprobs=SHOWN))
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == "hi there"
    assert all(choice["text"] for choice in choices[:-1])
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {("c1", "text_completion", "m")}
    assert (chunks[-1].get("usage") or {}).get("total_tokens") == (4 if usage else None)
