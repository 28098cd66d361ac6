"""The requests that are understood: vLLM's names. What cannot be honoured is refused, never silently dropped."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from leyden_engine.errors import EngineError

Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[float, Field(ge=1, le=1)]
Top = Annotated[int, Field(ge=0, le=20)]
TokenId = Annotated[int, Field(ge=0)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Generation(_Request):
    """What chat and text completions have in common."""

    model: str
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    prompt_logprobs: Top | None = None
    return_token_ids: bool | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None

    # Accepted at the value that changes nothing.
    n: Literal[1] | None = 1
    best_of: Literal[1] | None = 1
    echo: Literal[False] | None = False
    use_beam_search: Literal[False] | None = False
    presence_penalty: Zero | None = 0
    frequency_penalty: Zero | None = 0
    repetition_penalty: One | None = 1
    min_p: Zero | None = 0
    min_tokens: Zero | None = 0
    top_k: Literal[-1, 0] | None = 0
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    skip_special_tokens: Literal[True] | None = True
    response_format: "_PlainText | None" = None

    # Accepted at any value: they do not touch what is generated.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    request_id: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    include_reasoning: Any = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, without empty ones."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in stops if stop)


class _PlainText(_Request):
    type: Literal["text"]


class ChatRequest(_Generation):
    """The body of `POST /v1/chat/completions`."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _readable(self) -> "ChatRequest":
        _check(self.messages, self.tools or [])
        return self


class CompletionRequest(_Generation):
    """The body of `POST /v1/completions`."""

    prompt: str | list[TokenId]
    logprobs: Top | None = None
    """Most likely tokens to report, beside the sampled one."""
    return_tokens_as_token_ids: bool = False
    """Name tokens `token_id:7`, not by their text, which several may share."""
    add_special_tokens: bool = True


class TokenizeRequest(_Request):
    """The body of `POST /tokenize`: a chat, or a text."""

    model: str
    messages: list[dict[str, Any]] | None = Field(default=None, min_length=1)
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    prompt: str | None = None
    add_special_tokens: bool = True
    """Of a text. A chat's template has them."""

    # Accepted at the value that changes nothing.
    continue_final_message: Literal[False] = False
    return_token_strs: Literal[False] | None = False

    @model_validator(mode="after")
    def _one(self) -> "TokenizeRequest":
        if (self.messages is None) == (self.prompt is None):
            raise ValueError("give `messages` or `prompt`")
        _check(self.messages or [], self.tools or [])
        return self


class LoadAdapter(_Request):
    """The body of `POST /v1/load_lora_adapter`."""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)
    load_inplace: Literal[False] = False
    """A name never changes its weights."""


class UnloadAdapter(_Request):
    """The body of `POST /v1/unload_lora_adapter`."""

    lora_name: str = Field(min_length=1)
    lora_int_id: Any = None


R = TypeVar("R", bound=_Request)


def read(kind: type[R], body: bytes) -> R:
    """Read a request. Raises EngineError (400)."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        param = ".".join(map(str, fault["loc"])) or None
        if fault["type"] == "extra_forbidden":
            message = f"`{param}` is not supported by the embedded engine: leave it out, or use vLLM"
        else:
            message = f"`{param}`: {fault['msg']}" if param else fault["msg"]
        raise EngineError(400, message, param) from error


def _check(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
    for index, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise ValueError(f"messages[{index}] has no `role`")
    for index, tool in enumerate(tools):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict) or not function.get("name"):
            raise ValueError(f"tools[{index}] is not a function with a name")


def plain_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as chat templates expect them, and as vLLM hands them over.

    Content parts become one text, and the arguments of earlier tool calls become objects. Raises EngineError (400).
    """
    return [_plain(message) for message in messages]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    plain = {**message, "content": _content(message.get("content"))}
    calls = message.get("tool_calls")
    if calls and not isinstance(calls, list):
        raise EngineError(400, "`tool_calls` must be a list", "messages")
    if calls:
        plain["tool_calls"] = [_tool_call(call) for call in calls]
    return plain


def _content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    try:
        texts = [part if isinstance(part, str) else part["text"] for part in content]
        return "\n".join(texts)
    except (TypeError, KeyError) as error:
        raise EngineError(400, "message content must be a string or text parts", "messages") from error


def _tool_call(call: Any) -> dict[str, Any]:
    try:
        function = dict(call["function"])
        function["arguments"] = _arguments(function.get("arguments"))
        return {**call, "function": function}
    except (TypeError, KeyError, ValueError) as error:
        raise EngineError(400, f"a tool call in `messages` cannot be read: {error}", "messages") from error


def _arguments(given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) and given else given or {}
    except (ValueError, RecursionError):
        return given  # A model may have written it; the template shows it as it is.
