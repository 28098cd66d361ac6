"""Episodes: released, rung, claimed, kept alive, closed. Every change is compare-and-set on state and attempt."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from leyden_contracts import AttemptResult, Episode, EpisodeState, Purpose
from leyden_ledger.assembly import batch_of
from leyden_ledger.errors import EpisodeNotFound
from leyden_ledger.runs import Runs
from leyden_ledger.store import Scripts, key

_EXPIRE_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to run one attempt."""

    run: str
    episode: str
    attempt: int
    group: str
    task: str
    purpose: Purpose
    task_ref: str
    policy_version: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the dispatcher has to do for a run."""

    released: int
    """Groups that were let go just now."""
    due: int
    """Episodes that may be rung for."""
    pending: int
    """Episodes that are in the object store, and not yet in Redis."""
    unfinished: int
    """Episodes that have not ended, those pending included."""


class Episodes:
    """What the task API, the dispatcher, the reconciler and the workers do to episodes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis
        self._runs = Runs(scripts)

    async def release(self, run: str) -> int:
        """Let as many groups start as the staleness bound allows; return how many did."""
        return (await self._scripts.run("release", run))[0]

    async def look(self, run: str) -> Standing:
        """Do what `release` does, and say what there is to do for the dispatcher."""
        return Standing(*await self._scripts.run("release", run))

    async def due(self, run: str, limit: int, ring_again_s: float) -> list[str]:
        """Return episodes to ring for; each comes again after `ring_again_s` unless it has been claimed."""
        text = await self._scripts.run("due", run, (limit, int(ring_again_s * 1000)))
        return text.split("\n") if text else []

    async def claim(self, run: str, episode: str, worker: str, lease_s: float) -> Claim | None:
        """Start an attempt, or None if the episode is not waiting for one, or may not start now."""
        # redis-py repeats a command whose reply was lost: the number makes the second one the same claim.
        number = secrets.token_hex(6)
        found = await self._scripts.run("claim", run, (episode, worker, int(lease_s * 1000), number))
        if not found:
            return None
        attempt, group, purpose, task_ref, wanted, task = found
        return Claim(run, episode, attempt, group, task, purpose, task_ref, int(wanted) if wanted else None)

    async def heartbeat(self, run: str, episode: str, attempt: int, lease_s: float) -> bool:
        """Renew the lease. False: the attempt has lost (fenced or cancelled); kill the agent."""
        return bool(await self._scripts.run("heartbeat", run, (episode, attempt, int(lease_s * 1000))))

    async def close(self, run: str, episode: str, attempt: int, result: AttemptResult) -> bool:
        """Report how the attempt went. False: fenced, and the report is ignored."""
        args = (
            episode,
            attempt,
            result.outcome,
            "" if result.reward is None else repr(result.reward),
            json.dumps(result.rewards),
            json.dumps(result.output),
            result.reason or "",
            result.message,
            json.dumps(result.call_rewards) if result.call_rewards else "",
        )
        return bool(await self._scripts.run("close", run, args))

    async def give_back(self, run: str, episode: str, attempt: int) -> bool:
        """Return the episode unharmed, because this worker is leaving. False: fenced."""
        return bool(await self._scripts.run("give_back", run, (episode, attempt)))

    async def cancel(self, run: str, episode: str) -> bool:
        """End the episode as cancelled; False if its agent has ended already. Raises EpisodeNotFound."""
        done = await self._scripts.run("cancel", run, (episode,))
        if done < 0:
            raise EpisodeNotFound(f"there is no episode {episode!r} in run {run!r}")
        return bool(done)

    async def retried(self, run: str) -> set[str]:
        """Return the failed episodes whose tasks have been uploaded again."""
        return set(await self._redis.smembers(key(run, "retried")))

    async def note_retried(self, run: str, episodes: Sequence[str]) -> None:
        """Say that the tasks of failed `episodes` have been uploaded again."""
        if episodes:
            await self._redis.sadd(key(run, "retried"), *episodes)

    async def expire(self, run: str, trace_grace_s: float) -> int:
        """End attempts whose lease ran out or whose spans did not come in time, and what is left of a cancelled run.

        Returns how many. A run with nothing left to do is taken off the active ones.
        """
        ended, over = await self._scripts.run("expire", run, (int(trace_grace_s * 1000), _EXPIRE_AT_ONCE))
        if over and not ended:
            await self._runs.rest(run)
        return ended

    async def page(self, run: str, order: int, count: int) -> list[tuple[int, Episode]]:
        """Return (order, episode) of `count` episodes accepted as the `order`-th or later, in that order."""
        found = await self._redis.zrangebyscore(
            key(run, "episodes"), order, "+inf", start=0, num=count, withscores=True
        )
        episodes = await self.get_many(run, [episode for episode, _ in found])
        return [(int(at), episode) for (_, at), episode in zip(found, episodes, strict=True)]

    async def archived(self, run: str, number: int, episodes: int, last: int) -> bool:
        """Say that the episodes up to the `last`-th accepted are in archive `number`; False if the run has work."""
        return bool(await self._scripts.run("archived", run, (number, episodes, last)))

    async def forget(self, run: str, limit: int) -> int:
        """Drop up to `limit` episodes that are in the archive; return how many."""
        return await self._scripts.run("forget", run, (limit,))

    async def get(self, run: str, episode: str) -> Episode:
        """Return one episode. Raises EpisodeNotFound."""
        fields = await self._redis.hgetall(key(run, f"e:{episode}"))
        if not fields:
            raise EpisodeNotFound(f"there is no episode {episode!r} in run {run!r}")
        return _episode(run, episode, fields)

    async def get_many(self, run: str, ids: Sequence[str]) -> list[Episode]:
        """Return the episodes of `ids` that exist, in that order."""
        pipe = self._redis.pipeline(transaction=False)
        for episode in ids:
            pipe.hgetall(key(run, f"e:{episode}"))
        rows = await pipe.execute()
        return [_episode(run, episode, fields) for episode, fields in zip(ids, rows, strict=True) if fields]

    async def list(
        self,
        run: str,
        state: EpisodeState | None = None,
        purpose: Purpose | None = None,
        start: int = 0,
        count: int = 100,
        unarchived: bool = False,
    ) -> list[Episode]:
        """Return `count` episodes from the `start`-th on, in order of acceptance; `purpose` filters that page.

        With `unarchived`, those that are in the archive as well are left out, and not counted.
        """
        index = key(run, f"state:{state}" if state else "episodes")
        last = await self._redis.hget(key(run, "run"), "archived_order") if unarchived else None
        found = await self._redis.zrangebyscore(index, f"({last}" if last else "-inf", "+inf", start=start, num=count)
        page = await self.get_many(run, found)
        return [episode for episode in page if purpose in (None, episode.purpose)]


def _episode(run: str, episode: str, fields: dict[str, str]) -> Episode:
    group, _, index = episode.rpartition(".")
    return Episode.model_validate(
        {
            "id": episode,
            "run": run,
            "reward": fields.get("reward") if fields["state"] == EpisodeState.SUCCEEDED else None,
            "policy_version": fields.get("version"),
            "reason": fields.get("reason"),
            "message": fields.get("message", ""),
            "group": group,
            "index": index,
            "calls": fields.get("calls", 0),
            "batch": batch_of(fields.get("batch")),
            **{name: fields[name] for name in ("task", "purpose", "state", "attempt")},
        }
    )
