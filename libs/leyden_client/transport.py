"""HTTP with patience: every request of the client is safe to repeat, so it is repeated while the API is away."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import httpx
from pydantic import ValidationError

from leyden_client.errors import ApiError, ApiUnreachable, ClientError
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
        self._timeout_s = timeout_s
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
        answer_s: float = 0,
    ) -> httpx.Response:
        """Send until there is an answer that is not "away" or "too many". Raises ApiError, ApiUnreachable.

        Args:
            method: of HTTP.
            path: below the API's URL.
            params: of the query; those that are None are left out.
            json: the body, as a value.
            body: the body, as bytes.
            headers: besides the token.
            answer_s: seconds that the answer may take after the body was sent, where that is more than usual.
        """
        read_s = max(self._timeout_s, answer_s)
        timeout = httpx.Timeout(self._timeout_s, read=read_s)
        given = {name: value for name, value in (params or {}).items() if value is not None}

        def once() -> httpx.Response:
            content = body() if body else None
            return self._http.request(
                method, path, params=given, json=json, content=content, headers=headers, timeout=timeout
            )

        return self._patiently(once)

    def download(self, path: str, params: Mapping[str, Any], file: IO[bytes], answer_s: float) -> None:
        """Write a whole answer into `file`, from its beginning at each try. Raises ApiError, ApiUnreachable.

        Args:
            path: below the API's URL.
            params: of the query; those that are None are left out.
            file: that can be sought.
            answer_s: seconds that the answer, or a part of it, may let wait for itself.
        """
        timeout = httpx.Timeout(self._timeout_s, read=max(self._timeout_s, answer_s))
        given = {name: value for name, value in params.items() if value is not None}

        def once() -> httpx.Response:
            file.seek(0)
            file.truncate()
            with self._http.stream("GET", path, params=given, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                else:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
                return response

        self._patiently(once)

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
        # From the first failure on: a long upload that is refused at its end has had no chance to be repeated.
        until, pause = math.inf, 0.1
        while True:
            try:
                return self._try(once)
            except _Later as later:
                now, wait = time.monotonic(), max(pause, later.wait_s)
                until = min(until, now + self._patience_s)
                if now + wait > until:
                    raise later.refusal from later.__cause__
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _try(self, once: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            response = once()
        except httpx.TransportError as error:
            raise _Later(self._away(f"{type(error).__name__}: {error}")) from error
        if not response.is_error:
            return response
        refusal = ApiError(problem_of(response))
        if response.status_code == 429:
            raise _Later(refusal, _retry_after(response))
        if response.status_code in _AWAY:
            raise _Later(self._away(f"{response.status_code} {refusal.problem.detail}"), _retry_after(response))
        raise refusal

    def _away(self, reason: str) -> ApiUnreachable:
        return ApiUnreachable(f"the task API at {self.url} does not answer ({reason})")


class _Later(Exception):
    """Worth another try; `refusal` is what to say when there is none."""

    def __init__(self, refusal: ClientError, wait_s: float = 0) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.wait_s = wait_s


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds that the answer asks to wait; 0 if it does not say, or says it as a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def problem_of(response: httpx.Response) -> Problem:
    """Return the problem that an error answer states; make one if something else than Leyden answered."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        title = f"{response.status_code} {response.reason_phrase}"
        return Problem(title=title, status=response.status_code, detail=response.text[:500] or "no detail")
