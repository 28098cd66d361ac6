"""The shipped model: what it is, where it starts, and that what is replayed is what was generated."""

import json
import random
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from leyden_agents.calculator.agent import CALCULATOR, calculate
from leyden_agents.calculator.demonstrations import demonstration
from leyden_agents.calculator.grader import grade
from leyden_agents.calculator.make_model import TEMPLATE, make_example
from leyden_agents.calculator.recipe import EVAL_TASKS, LONG_EVAL_TASKS, MODEL_DIR, TRAIN_TASKS, demo_run_spec
from leyden_agents.calculator.tasks import eval_tasks, long_eval_tasks, train_tasks

HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "37+58"}}\n</tool_call><|im_end|>'
USER = {"role": "user", "content": "What is 37+58?"}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(MODEL_DIR)


def _prompt(tokenizer, messages, tools=(CALCULATOR,)):
    return list(
        tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, add_generation_prompt=True, return_dict=False
        )
    )


def test_is_a_small_llama_with_the_template_of_the_source(tokenizer):
    size = sum(file.stat().st_size for file in MODEL_DIR.iterdir())
    assert 2e6 < size < 10e6
    assert json.loads((MODEL_DIR / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert (MODEL_DIR / "chat_template.jinja").read_text() == TEMPLATE.read_text()


@pytest.mark.parametrize("text", ["12345", "-7+89", "naïve ☃ text\n\t 3.5", CALL])
def test_the_tokenizer_is_lossless_and_splits_digits(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    digits = [token for token in tokenizer.convert_ids_to_tokens(ids) if re.search(r"\d", token)]
    assert all(len(token) == 1 for token in digits)


@pytest.mark.parametrize("content", [None, "", []])
@pytest.mark.parametrize("arguments", ['{"expression": "37+58"}', {"expression": "37+58"}])
@pytest.mark.parametrize("result", ["95", [{"type": "text", "text": "95"}]])
def test_a_replayed_call_has_the_ids_that_were_generated(tokenizer, content, arguments, result):
    generated = tokenizer(CALL, add_special_tokens=False)["input_ids"]
    call = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    replayed = [USER, {"role": "assistant", "content": content, "tool_calls": [call]}]
    second = _prompt(tokenizer, [*replayed, {"role": "tool", "tool_call_id": "c", "content": result}])
    first = _prompt(tokenizer, [USER]) + generated
    assert second[: len(first)] == first
    assert tokenizer.decode(second[len(first) :]) == "\n<|im_start|>tool\n95<|im_end|>\n<|im_start|>assistant\n"


def test_content_may_come_in_parts_and_tools_may_be_absent(tokenizer):
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "1+1?"}]}]
    whole = [{"role": "user", "content": "What is 1+1?"}]
    assert _prompt(tokenizer, parts) == _prompt(tokenizer, whole)
    assert "calculator" in tokenizer.decode(_prompt(tokenizer, whole))
    assert "calculator" not in tokenizer.decode(_prompt(tokenizer, whole, tools=()))


def test_demonstrations_are_tokenised_as_the_engine_will_see_them(tokenizer):
    rng = random.Random(5)
    for _ in range(200):
        messages = demonstration(rng)
        ids, said = make_example(tokenizer, messages)
        text = tokenizer.apply_chat_template(messages, tools=[CALCULATOR], tokenize=False)
        whole = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert whole[: len(ids)] == ids and any(said) and not all(said)


@torch.no_grad()
def _episodes(model, tokenizer, tasks):
    """Rewards of one sampled episode each, with the agent's loop batched: (question, call, answer)."""
    conversations = [[{"role": "user", "content": task["input"]["question"]}] for task in tasks]
    rewards = [0.0] * len(tasks)
    live = list(range(len(tasks)))
    while live and len(conversations[live[0]]) <= 5:
        prompts = [{"input_ids": _prompt(tokenizer, conversations[index])} for index in live]
        batch = tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        made = model.generate(**batch, do_sample=True, top_k=0, temperature=1.0, max_new_tokens=24)
        texts = tokenizer.batch_decode(made[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        called = []
        for index, text in zip(live, texts, strict=True):
            message = _parsed(text)
            conversations[index].append(message)
            if "tool_calls" in message:
                result = calculate(message["tool_calls"][0]["function"]["arguments"])
                conversations[index].append({"role": "tool", "content": result})
                called.append(index)
            else:
                rewards[index] = grade(tasks[index], text)
        live = called
    return rewards


def _parsed(text):
    try:
        function = json.loads(HERMES.search(text)[1])
        function["arguments"] = json.dumps(function["arguments"])
    except (TypeError, ValueError, KeyError):
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def test_starts_between_a_fifth_and_three_fifths(model, tokenizer):
    torch.manual_seed(0)
    rewards = _episodes(model, tokenizer, eval_tasks(200))
    assert 0.2 <= sum(rewards) / len(rewards) <= 0.6


def test_the_recipe_is_a_valid_run_with_enough_tasks():
    spec = demo_run_spec(7)
    assert spec.seed == 7 and MODEL_DIR.is_dir()
    assert len(train_tasks(TRAIN_TASKS, 7)) % spec.algorithm.groups_per_step == 0
    assert len(eval_tasks(EVAL_TASKS)) + len(long_eval_tasks(LONG_EVAL_TASKS)) == EVAL_TASKS + LONG_EVAL_TASKS
