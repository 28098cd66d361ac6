"""Between text and token ids: the tokenizer and the chat template, as vLLM uses them."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig

from leyden_engine.errors import EngineError
from leyden_engine.network import ModelUnusable


class Text:
    """A model's tokenizer and chat template. Encoding is for one thread at a time; decoding for any."""

    def __init__(self, tokenizer: Any, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._core = tokenizer.backend_tokenizer
        self._core.no_truncation()
        self._core.no_padding()
        self.end_ids = end_ids
        """Ids that end a sequence."""
        self.piece = lru_cache(maxsize=2**16)(self._piece)
        """Token id -> the text it stands for by itself."""

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Return the prompt of a chat, up to where the assistant speaks. Raises EngineError (400)."""
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except Exception as error:  # templates raise what they like; the messages are to blame
            raise EngineError(400, f"the model's chat template refuses these messages: {error}", "messages") from error
        return self.encode(text, add_special=False)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Return the ids of `text`, with the tokenizer's own special tokens around it if `add_special`."""
        ids: list[int] = self._core.encode(text, add_special_tokens=add_special).ids
        return ids

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Return the text of `ids`."""
        text: str = self._core.decode(ids, skip_special_tokens=not keep_special)
        return text

    def find_stop(self, ids: Sequence[int], stops: Sequence[str], keep_special: bool) -> str | None:
        """Return the stop string that comes first in the text of `ids`, if any."""
        text = self.decode(ids, keep_special=keep_special)
        found = [(text.index(stop), stop) for stop in stops if stop in text]
        return min(found)[1] if found else None

    def _piece(self, token: int) -> str:
        return self.decode([token], keep_special=True)


def load_text(folder: Path) -> Text:
    """Load the tokenizer in `folder`. Raises ModelUnusable."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers documents none; the text is for the person who starts the engine
        raise ModelUnusable(f"the tokenizer in {folder} cannot be loaded: {error}") from error
    if not tokenizer.is_fast:
        raise ModelUnusable(f"the tokenizer in {folder} has no tokenizer.json")
    if tokenizer.chat_template is None:
        raise ModelUnusable(f"the tokenizer in {folder} has no chat template")
    ends = [tokenizer.eos_token_id, *_generation_ends(folder)]
    return Text(tokenizer, frozenset(end for end in ends if end is not None))


def _generation_ends(folder: Path) -> list[int | None]:
    if not (folder / "generation_config.json").is_file():
        return []
    ends = GenerationConfig.from_pretrained(folder).eos_token_id
    return ends if isinstance(ends, list) else [ends]
