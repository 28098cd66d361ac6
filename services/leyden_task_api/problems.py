"""Every error as problem details (RFC 9457), said so that the caller knows what to change."""

import math
from collections.abc import Iterable
from http import HTTPStatus

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from redis import RedisError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect

from leyden_contracts import Problem
from leyden_contracts.reading import fault_lines
from leyden_ledger import BacklogFull, Conflict, EpisodeNotFound, LedgerError, RunNotFound
from leyden_storage import ObjectNotFound, StoreError

log = structlog.get_logger()
RETRY = {"Retry-After": "1"}


class ProblemError(HTTPException):
    """An error to answer with. An HTTPException, because FastAPI lets only those through while it reads a body."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Iterable[str] = (),
        title: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.title = title
        self.errors = list(errors)


def problem_response(
    status: int, detail: str, errors: Iterable[str] = (), title: str = "", headers: dict[str, str] | None = None
) -> Response:
    """Return the answer for one error."""
    problem = Problem(title=title or HTTPStatus(status).phrase, status=status, detail=detail, errors=list(errors))
    return Response(problem.model_dump_json(), status, headers, "application/problem+json")


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    headers = dict(error.headers) if error.headers else None
    detail = str(error.detail)
    if isinstance(error, ProblemError):
        return problem_response(error.status_code, detail, error.errors, error.title, headers)
    return problem_response(error.status_code, detail, headers=headers)


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    lines = fault_lines(error.errors())
    return problem_response(422, f"the request has {len(lines)} fault(s): see `errors`", lines, "Invalid request")


def _from_ledger(_: Request, error: Exception) -> Response:
    if isinstance(error, RunNotFound | EpisodeNotFound):
        return problem_response(404, str(error))
    if isinstance(error, BacklogFull):
        # Whole seconds, as the header has them, and never 0: that would invite a busy loop.
        return problem_response(429, str(error), headers={"Retry-After": str(max(1, math.ceil(error.retry_after_s)))})
    # The same key for other tasks is a mistake in the request itself; the rest is about the run's state.
    return problem_response(422 if isinstance(error, Conflict) else 409, str(error))


def _absent(_: Request, error: Exception) -> Response:
    return problem_response(404, f"there is no such object: {error}")


def _unavailable(request: Request, error: Exception) -> Response:
    log.warning("unavailable", path=request.url.path, error=f"{type(error).__name__}: {error}")
    detail = "the ledger or the object store does not answer; try again shortly"
    return problem_response(503, detail, headers=RETRY)


def _hung_up(_: Request, error: Exception) -> Response:
    # Nobody reads this; without it, every upload that is broken off would be logged as a fault of ours.
    return problem_response(400, "the request ended before its body did")


def _failed(_: Request, error: Exception) -> Response:
    return problem_response(500, f"{type(error).__name__}: see the service's log")


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(LedgerError, _from_ledger)
    app.add_exception_handler(ObjectNotFound, _absent)
    for away in (StoreError, RedisError, TimeoutError):
        app.add_exception_handler(away, _unavailable)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _failed)
