"""From conversations to token ids, by the base model's own tokenizer and chat template.

Each turn of the assistant is a sample as a call of an agent is one: the prompt is what the engine would have been sent,
the response what it would have had to answer, its end token included. That turns share their beginnings costs nothing:
the forward pass computes those once.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer, GenerationConfig

from leyden_contracts.start_line import Messages
from leyden_learner.start.errors import StartRefused

_MARKS_TURNS = re.compile(r"\{%-?\s*generation\b")
"""In templates that say themselves which tokens are the assistant's."""
Tools = list[dict[str, Any]] | None


class Turn(NamedTuple):
    """What one turn of the assistant teaches."""

    prompt: list[int]
    response: list[int]


class Chat:
    """A model's tokenizer and chat template."""

    def __init__(self, tokenizer: Any, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._ends = end_ids
        self._marks = bool(_MARKS_TURNS.search(str(tokenizer.chat_template or "")))

    @classmethod
    def load(cls, folder: Path) -> "Chat":
        """Load the tokenizer in `folder`. Raises StartRefused."""
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # transformers documents none
            raise StartRefused(f"the base model's tokenizer cannot be loaded: {error}") from error
        ends = {tokenizer.eos_token_id, *_generation_ends(folder)}
        return cls(tokenizer, frozenset(end for end in ends if end is not None))

    def turns(self, messages: Messages, tools: Tools, first: int = 0) -> list[Turn]:
        """Return the assistant's turns from message `first` on. Raises StartRefused."""
        if not self._tokenizer.chat_template:
            raise StartRefused("the base model has no chat template: give `prompt` and `completion` as plain texts")
        said = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
        find = self._marked if self._marks else self._after_prompt
        return [find(messages[: i + 1], tools) for i in said]

    def text(self, prompt: str, completion: str) -> Turn:
        """Return a plain text and how it goes on, to its end."""
        end = [] if self._tokenizer.eos_token_id is None else [self._tokenizer.eos_token_id]
        return _checked(self._encode(prompt, True), self._encode(completion, False) + end)

    def _marked(self, messages: Messages, tools: Tools) -> Turn:
        """Find the last turn where the template marks the assistant's tokens."""
        options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        found = self._render(messages, tools, **options)
        ids, mask = list(found["input_ids"]), list(found["assistant_masks"])
        if 1 not in mask:
            raise StartRefused("the chat template marks nothing of a turn as the assistant's")
        end = len(mask) - mask[::-1].index(1)
        start = next((i + 1 for i in range(end - 1, -1, -1) if not mask[i]), 0)
        return _checked(ids[:start], ids[start:end])

    def _after_prompt(self, messages: Messages, tools: Tools) -> Turn:
        """Find the last turn as what the conversation has more than the prompt for it."""
        *before, _ = messages
        prompt, whole = (
            self._encode(self._render(one, tools, tokenize=False, add_generation_prompt=asks), False)
            for one, asks in ((before, True), (messages, False))
        )
        if whole[: len(prompt)] != prompt:
            raise StartRefused(
                "the chat template does not write a turn of the assistant as it asks for one, so what the assistant "
                "said cannot be told apart: use a template with `{% generation %}`"
            )
        response = whole[len(prompt) :]
        # The engine stops at the end token: what the template writes after it, no model ever has to say.
        last = max((i for i, token in enumerate(response) if token in self._ends), default=len(response) - 1)
        return _checked(prompt, response[: last + 1])

    def _render(self, messages: Messages, tools: Tools, **options: Any) -> Any:
        try:
            return self._tokenizer.apply_chat_template(messages, tools=tools, **options)
        except Exception as error:  # templates raise what they like
            raise StartRefused(f"the model's chat template refuses these messages: {error}") from error

    def _encode(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=special, truncation=False)["input_ids"]
        return ids


def _checked(prompt: list[int], response: list[int]) -> Turn:
    if not prompt or not response:
        raise StartRefused("nothing stands before or in a turn of the assistant, as the model's tokens have it")
    return Turn(prompt, response)


def _generation_ends(folder: Path) -> list[int | None]:
    if not (folder / "generation_config.json").is_file():
        return []
    ends = GenerationConfig.from_pretrained(folder).eos_token_id
    return ends if isinstance(ends, list) else [ends]
