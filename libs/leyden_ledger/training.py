"""Training: finished groups in order, and which version has been published."""

from collections.abc import Sequence
from dataclasses import dataclass

from leyden_contracts import Episode, EpisodeState, Group, episode_id
from leyden_ledger.assembly import pack_batch
from leyden_ledger.episodes import Episodes
from leyden_ledger.store import PUBLISHED, SERVED, Argument, Scripts, key


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """What the object store says of an episode that has succeeded."""

    episode: str
    attempt: int
    reward: float
    version: int | None
    """Of its first call, if it made one."""
    calls: int
    batch: str


class Training:
    """What the learner asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis
        self._episodes = Episodes(scripts)

    async def finished_groups(self, run: str, start: int, count: int) -> list[Group]:
        """Return up to `count` training groups from the `start`-th finished one on. The order never changes."""
        ids = await self._redis.lrange(key(run, "finished"), start, start + count - 1)
        pipe = self._redis.pipeline(transaction=False)
        for group in ids:
            pipe.hmget(key(run, f"g:{group}"), "task", "card")
        rows = await pipe.execute()
        return [_group(run, group, task, card) for group, (task, card) in zip(ids, rows, strict=True)]

    async def group_episodes(self, run: str, group: Group) -> list[Episode]:
        """Return the group's episodes, by index."""
        return await self._episodes.get_many(run, [episode_id(group.id, i) for i in range(group.size)])

    async def restore(self, run: str, group: str, stored: Sequence[StoredEpisode], consumed: bool) -> None:
        """Say what is stored of a group whose ledger was lost: its other episodes run again, unless it is consumed."""
        args: list[Argument] = []
        for one in stored:
            index, version = one.episode.rpartition(".")[2], "" if one.version is None else one.version
            args += [index, one.attempt, repr(one.reward), version, one.calls, pack_batch(one.batch)]
        await self._scripts.run("restore", run, (group, int(consumed), *args))

    async def restore_ended(self, run: str, group: str, episodes: Sequence[Episode]) -> None:
        """Say how a group ended whose trajectories are gone by the run's retention: nothing of it runs again."""
        args: list[Argument] = []
        for one in episodes:
            if one.state is EpisodeState.SUCCEEDED:
                version = "" if one.policy_version is None else one.policy_version
                batch = pack_batch(one.batch) if one.batch else ""
                args += [one.index, one.attempt, repr(one.reward), version, one.calls, batch]
        await self._scripts.run("restore", run, (group, 1, *args))

    async def publish(self, run: str, version: int) -> bool:
        """Announce that `version` is committed in the object store; False if that was known."""
        done = await self._scripts.run("advance", run, ("published", version))
        # After the run's own keys, which may live on another node; the learner repeats itself after a crash.
        await self._redis.sadd(SERVED, run)
        if done:
            await self._redis.xadd(PUBLISHED, {"run": run}, maxlen=100, approximate=True)
        return bool(done)

    async def ask_for(self, run: str, groups: int) -> bool:
        """Let `groups` more start, in all, than `groups_per_step` for each step; False if as many had been asked for.

        The number only grows: repeat it as often as you like.
        """
        return bool(await self._scripts.run("advance", run, ("groups_asked", groups)))

    async def consumed(self, run: str, groups: int) -> bool:
        """Record that the first `groups` finished groups are in committed checkpoints; False if that was known."""
        return bool(await self._scripts.run("advance", run, ("groups_consumed", groups)))


def _group(run: str, group: str, task: str, card: str) -> Group:
    purpose, size, version, sequence = card.split(" ")
    fields = {"id": group, "run": run, "task": task, "purpose": purpose, "size": size, "sequence": sequence}
    return Group.model_validate(fields | ({} if version == "-" else {"policy_version": version}))
