"""The replica, over HTTP: the subset of vLLM's API that vLLM and the embedded engine share."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

_SHOWN = 300
MOST_LOGPROBS = 20
"""What vLLM lists if it was not started with more."""


class ReplicaDown(Exception):
    """Nobody answers, or not in time."""


class ReplicaRefused(Exception):
    """The replica answered, and the answer is no use."""


class Replica:
    """A client of one replica. Methods raise ReplicaDown and ReplicaRefused. A context manager."""

    def __init__(self, url: str, api_key: str, list_timeout_s: float, work_timeout_s: float) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = url.rstrip("/")
        self._http = aiohttp.ClientSession(headers=headers)
        self._list_timeout = aiohttp.ClientTimeout(list_timeout_s)
        self._work_timeout = aiohttp.ClientTimeout(work_timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def models(self) -> set[str]:
        """Return what the replica serves: its base model and the loaded adapters."""
        body = await self._send("GET", "/v1/models", None, self._list_timeout)
        try:
            return {str(model["id"]) for model in body["data"]}
        except (TypeError, KeyError) as error:
            raise ReplicaRefused(f"/v1/models is no list of models: {str(body)[:_SHOWN]}") from error

    async def load(self, name: str, folder: Path) -> None:
        """Load the adapter in `folder` under `name`, never in place of another."""
        await self._send("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload(self, name: str) -> None:
        """Unload an adapter; calls that run on it end on its weights."""
        await self._send("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def next_logprob(self, model: str, prefix: Sequence[int], token: int) -> float:
        """Return what `model` thinks of `token` after `prefix`: natural log, at temperature 1.

        Of a token that is not among the 20 likeliest, the most that it can be.

        By the logprobs of one sampled token, not by `prompt_logprobs`: in a batch with other requests those kill a vLLM
        that has LoRA on (0.32, CPU: its logits layer mixes up the rows of prompts and samples).
        """
        request = {
            "model": model,
            "prompt": list(prefix),
            "max_tokens": 1,
            "logprobs": MOST_LOGPROBS,
            "return_tokens_as_token_ids": True,
            # The plain distribution, whatever the model's own generation_config.json says.
            **{"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1},
        }
        return _answer(await self._send("POST", "/v1/completions", request), token)

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None, timeout: aiohttp.ClientTimeout | None = None
    ) -> Any:
        timeout = timeout or self._work_timeout
        try:
            async with self._http.request(method, self._url + path, json=body, timeout=timeout) as answer:
                text = await answer.text()
                if answer.status != 200:
                    raise ReplicaRefused(f"{method} {path}: {answer.status} {text[:_SHOWN]}")
                # vLLM answers a load with plain text.
                return await answer.json() if answer.content_type == "application/json" else text
        except (TimeoutError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise ReplicaDown(f"{method} {path}: {type(error).__name__} {error}") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ReplicaRefused(f"{method} {path}: {type(error).__name__} {error}") from error


def _answer(body: Any, token: int) -> float:
    """Read `{"token_id:7": -0.1, ...}`, the most likely next tokens."""
    try:
        (listed,) = body["choices"][0]["logprobs"]["top_logprobs"]
        values = {name: float(value) for name, value in listed.items()}
    except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
        raise ReplicaRefused(f"no logprobs in the reply: {str(body)[:_SHOWN]}") from error
    if len(values) < 2 or not all(map(math.isfinite, values.values())):
        raise ReplicaRefused(f"no use as logprobs: {str(body)[:_SHOWN]}")
    found = values.get(f"token_id:{token}")
    if found is not None:
        return found
    # The sampled token is listed too, however unlikely.
    return sorted(values.values(), reverse=True)[:MOST_LOGPROBS][-1]
