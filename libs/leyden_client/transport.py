"""HTTP with patience: every request of the client is safe to repeat, so it is repeated while the API is away."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from pydantic import ValidationError

from leyden_client.errors import ApiError, ApiUnreachable
from leyden_contracts import Problem

Body = Callable[[], Iterable[bytes]]
"""Makes the body anew for each try."""

_AWAY = frozenset({502, 503, 504})
_LONGEST_PAUSE_S = 2.0


class Transport:
    """One connection pool to one API."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 30, patience_s: float = 30) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send until there is an answer that is not "away". Raises ApiError, ApiUnreachable."""
        given = {name: value for name, value in (params or {}).items() if value is not None}

        def once() -> httpx.Response:
            content = body() if body else None
            return self._http.request(method, path, params=given, json=json, content=content, headers=headers)

        return self._patiently(once)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Open a stream that may stay quiet for long. Raises ApiError, httpx.TransportError."""
        timeout = httpx.Timeout(10, read=30)
        with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.is_error:
                response.read()
                raise ApiError(problem_of(response))
            yield response

    def _patiently(self, once: Callable[[], httpx.Response]) -> httpx.Response:
        until, pause = time.monotonic() + self._patience_s, 0.1
        while True:
            try:
                response = once()
                reason = f"{response.status_code} {problem_of(response).detail}" if response.is_error else ""
                if response.status_code not in _AWAY:
                    break
            except httpx.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
            if time.monotonic() + pause > until:
                raise ApiUnreachable(f"the task API at {self.url} does not answer ({reason})")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        if response.is_error:
            raise ApiError(problem_of(response))
        return response


def problem_of(response: httpx.Response) -> Problem:
    """Return the problem that an error answer states; make one if something else than Leyden answered."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        title = f"{response.status_code} {response.reason_phrase}"
        return Problem(title=title, status=response.status_code, detail=response.text[:500] or "no detail")
