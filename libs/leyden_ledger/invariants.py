"""The invariants I1 to I6 (README, "How it works"), each as a function of what is known of a run. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leyden_contracts import (
    TERMINAL_STATES,
    AdapterManifest,
    Episode,
    EpisodeState,
    RunSpec,
    Trajectory,
    Verdict,
    adapter_name,
)
from leyden_ledger.replicas import ReplicaStatus
from leyden_ledger.runs import RunState, RunSummary


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where an invariant does not hold."""

    invariant: str
    """`I1` to `I6`."""
    subject: str
    """An episode, group, adapter or object key."""
    message: str

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.invariant} {self.subject}: {self.message}"


@dataclass(frozen=True, slots=True)
class Adapters:
    """A role's stored versions."""

    manifests: Mapping[int, AdapterManifest]
    digests: Mapping[int, Mapping[str, str]]
    """Version -> file -> sha256 of what is stored."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known of a run."""

    spec: RunSpec
    summary: RunSummary
    published: int
    """Newest published version, read before the store was."""
    uploads: Mapping[str, int]
    """Upload -> groups, of those that the ledger has accepted."""
    stored_uploads: Mapping[str, int]
    """The same, of those that are whole in the object store."""
    episodes: Mapping[str, Episode]
    leased: frozenset[str]
    rewarded: frozenset[str]
    """Episodes whose ledger entry holds a reward."""
    trajectories: Mapping[str, Trajectory]
    """By episode, without tokens. Where several are stored, that of the highest attempt."""
    places: Mapping[str, str]
    """Episode -> the batch that holds this trajectory."""
    expired: frozenset[str]
    """Episodes whose trajectories may be gone by the run's retention."""
    adapters: Mapping[str, Adapters]
    """By trained role."""
    replicas: tuple[ReplicaStatus, ...]
    unreadable: tuple[Violation, ...]

    @property
    def manifests(self) -> Mapping[int, AdapterManifest]:
        """The lead role's: they commit the versions."""
        return self.adapters[self.spec.lead_role].manifests


def endings(facts: Facts) -> Iterator[Violation]:
    """I1: every accepted episode ends in exactly one terminal state."""
    summary = facts.summary
    counted = {name: count for name, count in summary.counts.items() if count}
    actual = Counter(f"{episode.purpose}:{episode.state}" for episode in facts.episodes.values())
    actual += Counter({f"{purpose}:cancelled": count for purpose, count in summary.never_entered.items()})
    known = len(facts.episodes) + summary.pending + sum(summary.never_entered.values())
    if known < summary.episodes_accepted:
        yield Violation("I1", "episodes", f"{summary.episodes_accepted} were accepted, but there are {known}")
    for batch, groups in facts.uploads.items():
        if facts.stored_uploads.get(batch) != groups:
            yield Violation("I1", batch, f"this upload of {groups} tasks was accepted, but it is not stored")
    settled = not summary.pending and all(episode.state in TERMINAL_STATES for episode in facts.episodes.values())
    if settled and counted != dict(actual):
        yield Violation("I1", "counts", f"the ledger counts {counted}, but there are {dict(actual)}")
    for episode in facts.episodes.values():
        ended = episode.state in TERMINAL_STATES
        if ended and episode.id in facts.leased:
            yield Violation("I1", episode.id, f"it is {episode.state}, but an attempt still holds its lease")
        if not ended and episode.purpose == "train" and facts.summary.state is RunState.FINISHED:
            yield Violation("I1", episode.id, f"the run is finished, but it is {episode.state}")


def transitions(facts: Facts) -> Iterator[Violation]:
    """I2: every transition is stored exactly once, and only the winning attempt's."""
    for name, trajectory in facts.trajectories.items():
        for message in _unlike(trajectory, facts.places[name], facts.episodes.get(name)):
            yield Violation("I2", name, message)
    for episode in facts.episodes.values():
        there = episode.id in facts.trajectories or episode.id in facts.expired
        if episode.state is EpisodeState.SUCCEEDED and not there:
            yield Violation("I2", episode.id, "it succeeded, but its trajectory is not stored")
    steps = (step for trajectory in facts.trajectories.values() for step in trajectory.transitions)
    for (replica, reply), times in Counter((step.replica, step.response_id) for step in steps).items():
        if times > 1:
            yield Violation("I2", reply, f"this reply of {replica} is stored {times} times")


def _unlike(trajectory: Trajectory, place: str, episode: Episode | None) -> Iterator[str]:
    """Yield how a stored trajectory differs from what the ledger says of its episode."""
    if episode is None:
        yield "it belongs to no episode of the ledger"
        return
    numbers = [step.number for step in trajectory.transitions]
    # While it is collecting, the trajectory is written and about to be settled.
    if episode.state not in (EpisodeState.SUCCEEDED, EpisodeState.COLLECTING):
        yield f"its episode is {episode.state}"
    if episode.state is EpisodeState.SUCCEEDED and episode.batch != place:
        yield f"it is in batch {place}, but the ledger looks for it in {episode.batch}"
    if trajectory.attempt != episode.attempt:
        yield f"it is attempt {trajectory.attempt}'s, but attempt {episode.attempt} won"
    if numbers != list(range(1, episode.calls + 1)):
        yield f"it has calls {numbers}, but the gateway counted {episode.calls}"
    if trajectory.verdict is Verdict.INCOMPLETE or (numbers and trajectory.verdict is Verdict.TEXT_ONLY):
        yield f"its verdict is {trajectory.verdict}"


def batches(facts: Facts) -> Iterator[Violation]:
    """I3: a trajectory enters at most one batch, with known versions, within the staleness bound."""
    consumed = Counter(group for manifest in facts.manifests.values() for group in manifest.groups)
    trained = Counter(episode for manifest in facts.manifests.values() for episode in manifest.trained_episodes)
    for subject, times in (consumed + trained).items():
        if times > 1:
            yield Violation("I3", subject, f"it was trained on {times} times")
    for manifest in facts.manifests.values():
        for episode in manifest.trained_episodes:
            for message in _wrong_to_train_on(facts, manifest, episode):
                yield Violation("I3", episode, f"version {manifest.version} was trained on {message}")


def _wrong_to_train_on(facts: Facts, manifest: AdapterManifest, episode: str) -> Iterator[str]:
    """Yield why a version should not have been trained on an episode."""
    trajectory = facts.trajectories.get(episode)
    if trajectory is None and episode in facts.expired:
        return
    if trajectory is None or trajectory.purpose != "train":
        yield "it, but it is no stored training data"
        return
    if trajectory.group not in manifest.groups:
        yield "it, but not on its group"
    if trajectory.verdict is not Verdict.COMPLETE:
        yield f"it, but it is {trajectory.verdict}"
    used = {step.policy_version for step in trajectory.transitions if step.role in facts.spec.trained_roles}
    if not used <= {0, *(known for known in facts.manifests if known < manifest.version)}:
        yield f"unknown versions {sorted(used)}"
    bound = facts.spec.algorithm.max_staleness
    if used and manifest.version - 1 - min(used) > bound:
        yield f"version {min(used)}'s; {bound} allowed"


def adapters(facts: Facts) -> Iterator[Violation]:
    """I4: what is stored, and what replicas say they serve, is what the learner wrote."""
    run, lead = facts.spec.id or "", facts.spec.lead_role
    count = len(facts.adapters[lead].digests)
    names: set[str] = set()
    for role, stored in facts.adapters.items():
        # A version of another role than the lead is there before the lead's commits it.
        committed = sorted(version for version in stored.digests if role == lead or version <= count)
        names |= {adapter_name(run, role, version) for version in committed}
        for version in committed:
            yield from _unlike_its_manifest(adapter_name(run, role, version), version, stored)
        if committed != list(range(1, count + 1)):
            yield Violation("I4", role, f"versions are missing: there are {committed}")
    if facts.published > count:
        yield Violation("I4", lead, f"version {facts.published} is published, but not stored")
    for replica in facts.replicas:
        ours = {name for name in replica.ready if name.startswith(f"{run}--")}
        for name in sorted(ours - names) + sorted(ours & set(replica.rejected)):
            yield Violation("I4", name, f"the replica {replica.id} says that it serves this, without proof")


def _unlike_its_manifest(name: str, version: int, stored: Adapters) -> Iterator[Violation]:
    manifest = stored.manifests.get(version)
    if manifest is None:
        yield Violation("I4", name, "its manifest cannot be read")
        return
    for file, digest in stored.digests[version].items():
        if digest != manifest.files[file]:
            yield Violation("I4", f"{name}/{file}", f"its sha256 is {digest}, not the learner's")
    if (manifest.version, manifest.parent) != (version, version - 1):
        yield Violation("I4", name, f"its manifest says version {manifest.version}, parent {manifest.parent}")


def owners(facts: Facts) -> Iterator[Violation]:
    """I5: nothing is stored under another's name."""
    for name, trajectory in facts.trajectories.items():
        # Its calls have no owner of their own: a row belongs to the episode whose head it follows.
        if (trajectory.run, trajectory.group) != (facts.spec.id, name.rpartition(".")[0]):
            yield Violation("I5", name, f"its trajectory says that it is {trajectory.run}/{trajectory.group}'s")


def rewards(facts: Facts) -> Iterator[Violation]:
    """I6: an infrastructure failure never becomes a reward."""
    trained = {episode for manifest in facts.manifests.values() for episode in manifest.trained_episodes}
    for episode in facts.episodes.values():
        failed = episode.state in TERMINAL_STATES and episode.state is not EpisodeState.SUCCEEDED
        if failed and episode.id in facts.rewarded:
            yield Violation("I6", episode.id, f"it is {episode.state}, but has a reward")
        if failed and episode.id in trained:
            yield Violation("I6", episode.id, f"it is {episode.state}, but was trained on")
    for name, trajectory in facts.trajectories.items():
        found = facts.episodes.get(name)
        if found and found.state is EpisodeState.SUCCEEDED and found.reward != trajectory.reward:
            yield Violation("I6", name, f"its reward is {trajectory.reward}, but the grader's was {found.reward}")


INVARIANTS = (endings, transitions, batches, adapters, owners, rewards)
