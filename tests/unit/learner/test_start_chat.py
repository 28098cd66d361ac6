"""From conversations to tokens: exactly what the assistant said is learned, whatever the template writes around it."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from leyden_learner.start.chat import Chat
from leyden_learner.start.errors import StartRefused
from support.tiny_model import END, START, make_model

USER, REPLY = {"role": "user", "content": "What is 37 + 58?"}, {"role": "assistant", "content": "The answer is 95."}
MARKED = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    "{%- else -%}{{ message.content + '<|im_end|>' }}{%- endif -%}{{ '\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
FORGETFUL = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}now speak: {% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("speaks"))


def chat(model: Path, template: str | None = "", **changes: Any) -> tuple[Chat, Any]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = tokenizer.chat_template if template == "" else template
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    return Chat(tokenizer, frozenset({tokenizer.eos_token_id})), tokenizer


@pytest.mark.parametrize("template", ["", MARKED], ids=["prefixes", "generation"])
def test_a_turn_is_what_the_engine_is_asked_and_answers(model: Path, template: str) -> None:
    talk, tokenizer = chat(model, template)
    second = {"role": "assistant", "content": "It is 5."}
    messages = [USER, REPLY, {"role": "user", "content": "And 2 + 3?"}, second]

    turns = talk.turns(messages, None)

    said = [(tokenizer.decode(turn.prompt), tokenizer.decode(turn.response)) for turn in turns]
    first_prompt = f"{START}user\nWhat is 37 + 58?{END}\n{START}assistant\n"
    second_prompt = f"{first_prompt}The answer is 95.{END}\n{START}user\nAnd 2 + 3?{END}\n{START}assistant\n"
    assert said == [(first_prompt, f"The answer is 95.{END}"), (second_prompt, f"It is 5.{END}")]
    # Not only the same text: the same tokens that the engine gets.
    asked = tokenizer.apply_chat_template(messages[:3], add_generation_prompt=True, tokenize=True, return_dict=False)
    assert turns[1].prompt == list(asked)
    assert [turn.response[-1] for turn in turns] == [tokenizer.eos_token_id] * 2


def test_only_turns_after_the_prompt_are_learned(model: Path) -> None:
    talk, tokenizer = chat(model)

    (turn,) = talk.turns([USER, REPLY, USER, REPLY], None, first=2)

    assert tokenizer.decode(turn.prompt).count("The answer is 95.") == 1


def test_tool_calls_are_learned_and_results_are_not(model: Path) -> None:
    talk, tokenizer = chat(model)
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 37, "b": 58}}}
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "95"},
        REPLY,
    ]

    turns = talk.turns(messages, [{"type": "function", "function": {"name": "add"}}])

    used, said = (tokenizer.decode(turn.response) for turn in turns)
    assert used == f'<tool_call>\n{{"name": "add", "arguments": {{"a": 37, "b": 58}}}}\n</tool_call>{END}'
    assert said == f"The answer is 95.{END}"
    assert tokenizer.decode(turns[0].prompt).startswith(f"{START}system\nadd ")


def test_a_plain_text_goes_on_to_its_end(model: Path) -> None:
    talk, tokenizer = chat(model)

    turn = talk.text("37 + 58 =", " 95")

    assert (tokenizer.decode(turn.prompt), tokenizer.decode(turn.response)) == ("37 + 58 =", f" 95{END}")


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (None, "no chat template"),
        (FORGETFUL, r"use a template with `\{% generation %\}`"),
        ("{{ raise_exception('no system') }}", "refuses these messages: no system"),
        ("{{ messages[0].content }}{% generation %}{% endgeneration %}", "marks nothing"),
        ("{% if messages|length > 1 %}{{ messages[1].content }}{% endif %}", "nothing stands before"),
    ],
)
def test_a_template_that_does_not_show_who_said_what_is_refused(model: Path, template: str | None, told: str) -> None:
    talk, _ = chat(model, template)
    with pytest.raises(StartRefused, match=told):
        talk.turns([USER, REPLY], None)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="tokenizer cannot be loaded"):
        Chat.load(tmp_path)
