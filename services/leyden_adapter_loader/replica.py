"""The replica, over HTTP: the subset of vLLM's API that vLLM and the embedded engine share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

_SHOWN = 300


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

    async def prompt_logprobs(self, model: str, token_ids: Sequence[int]) -> list[float]:
        """Return `model`'s logprobs of tokens 2..T of the prompt: shape [T - 1]."""
        request = {
            "model": model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        return _prompt_logprobs(await self._send("POST", "/v1/completions", request), token_ids)

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


def _prompt_logprobs(body: Any, token_ids: Sequence[int]) -> list[float]:
    """Read `[None, {"<token id>": {"logprob": x, ...}, ...}, ...]`: entry t scores token t given those before it."""
    try:
        entries = body["choices"][0]["prompt_logprobs"]
        if len(entries) != len(token_ids):
            raise ReplicaRefused(f"{len(entries)} prompt logprobs for {len(token_ids)} tokens")
        pairs = zip(entries[1:], token_ids[1:], strict=True)
        return [float(entry[str(token)]["logprob"]) for entry, token in pairs]
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ReplicaRefused(f"no prompt logprobs in the reply: {str(body)[:_SHOWN]}") from error
