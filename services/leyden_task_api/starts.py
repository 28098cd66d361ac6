"""Starts of runs: whether what one begins with fits, its uploaded data on the way in, and where it stands."""

import asyncio
import time

from leyden_contracts import AdapterStart, DpoStart, RunSpec, SftStart, StoredStart
from leyden_contracts.api import StartView
from leyden_ledger import RunNotFound, RunState, Sealed
from leyden_storage import ObjectNotFound
from leyden_storage.starts import read_refusal, read_start, write_start
from leyden_task_api.intake import check_faults
from leyden_task_api.parts import Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.upload import Spool

_ENDED = (RunState.FINISHED, RunState.CANCELLED)


async def check_source(parts: Parts, spec: RunSpec) -> None:
    """Check that the run which the start of `spec` begins with is there and fits. Raises ProblemError."""
    start = spec.start
    if start is None or start.run is None:
        return
    source = await _source(parts, start.run, spec.tenant)
    if source.base_model != spec.base_model:
        detail = f"run {start.run!r} is of the base model {source.base_model!r}: set `base_model` to that"
        raise ProblemError(422, f"{detail}, or begin with another run")
    if isinstance(start, AdapterStart):
        await _check_adapter(parts, spec, start, source)
    else:
        await _check_data(parts, spec, start, source)


async def _source(parts: Parts, run: str, tenant: str) -> RunSpec:
    try:
        source = await parts.ledger.runs.get(run)
    except RunNotFound:
        source = None
    # Whether there is a run of this name is the other tenant's affair.
    if source is None or source.tenant != tenant:
        raise ProblemError(404, f"there is no run {run!r} to start from")
    return source


async def _check_adapter(parts: Parts, spec: RunSpec, start: AdapterStart, source: RunSpec) -> None:
    ours, theirs = spec.algorithm.lora, source.algorithm.lora
    if ours != theirs:
        shape = f"rank {theirs.rank} and alpha {theirs.alpha}"
        raise ProblemError(422, f"the adapters of run {start.run!r} have {shape}: set `algorithm.lora` to that")
    _check_roles(start.run, [start.role] if start.role else spec.trained_roles, source)
    try:
        await asyncio.to_thread(parts.adapters.one, source, start.version)
    except ObjectNotFound as error:
        raise ProblemError(404, f"run {start.run!r} has no version {start.version}") from error


async def _check_data(parts: Parts, spec: RunSpec, start: SftStart | DpoStart, source: RunSpec) -> None:
    _check_roles(str(start.run), [start.role] if start.role else spec.trained_roles, source, trained=False)
    summary = await parts.ledger.runs.summary(str(start.run))
    under_way = any(summary.counts.get(f"train:{state}") for state in ("queued", "running", "collecting"))
    if under_way or summary.state not in _ENDED:
        detail = f"run {start.run!r} has not ended, so its trajectories are not all there: seal it and wait for its end"
        raise ProblemError(409, f"{detail}, or cancel it")


def _check_roles(run: str, wanted: list[str] | tuple[str, ...], source: RunSpec, trained: bool = True) -> None:
    known = source.trained_roles if trained else tuple(sorted(source.roles))
    if missing := sorted(set(wanted) - set(known)):
        what = "trained role" if trained else "role"
        detail = f"run {run!r} has no {what} {', '.join(map(repr, missing))}; it has: {', '.join(known)}"
        raise ProblemError(422, f"{detail}. Set `start.role`, or name the roles alike")


def data_start(spec: RunSpec) -> SftStart | DpoStart:
    """Return the start of a run whose start takes uploaded data. Raises ProblemError."""
    start = spec.start
    if start is None or isinstance(start, AdapterStart):
        detail = "create one with `start: {kind: sft}` or `{kind: dpo}`"
        raise ProblemError(409, f"run {spec.id!r} has no start that takes data: {detail}")
    if start.run is not None:
        raise ProblemError(409, f"the start of run {spec.id!r} learns from run {start.run!r}: it takes no other data")
    return start


async def accept_start(parts: Parts, run: str, spool: Spool) -> StartView:
    """Store the data of a run's start, once. Raises ProblemError, StoreError."""
    check_faults(spool, "Invalid start data")
    if not spool.groups:
        raise ProblemError(422, "there is nothing in this upload to learn from", title="Invalid start data")
    if (await parts.ledger.runs.summary(run)).state is RunState.CANCELLED:
        raise Sealed
    digest = await asyncio.to_thread(spool.digest)
    new = StoredStart(digest=digest, part_lines=spool.part_lines, created=time.time())
    stored = await asyncio.to_thread(lambda: write_start(parts.store, run, new, spool.parts()))
    if stored.digest != digest:
        raise ProblemError(409, f"the start of run {run!r} has other data, and that never changes: create a new run")
    return await show_start(parts, run)


async def show_start(parts: Parts, run: str) -> StartView:
    """Say where the run's start stands. Raises ProblemError (404) if it has none, StoreError."""
    spec = await parts.ledger.runs.get(run)
    if spec.start is None:
        raise ProblemError(404, f"run {run!r} has no start: it begins on the base model")
    return await asyncio.to_thread(_view, parts, spec)


def _view(parts: Parts, spec: RunSpec) -> StartView:
    run = str(spec.id)
    stored = read_start(parts.store, run)
    seen = StartView(state="under_way")
    if stored:
        seen = seen.model_copy(update={"lines": stored.lines, "digest": stored.digest})
    try:
        return seen.model_copy(update={"state": "done", "origin": parts.adapters.manifest(spec, 1).start})
    except ObjectNotFound:
        pass
    if spec.start and spec.start.run is None and stored is None:
        return seen.model_copy(update={"state": "waiting_for_data"})
    refusal = read_refusal(parts.store, run)
    return seen.model_copy(update={"state": "refused", "reason": refusal.reason}) if refusal else seen
