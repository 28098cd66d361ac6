"""Where spans become a trajectory: the calls of one attempt in order, what the agent did around them, a verdict."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leyden_contracts import Purpose, SignalRules, Trajectory, Transition, Verdict
from leyden_traces.placing import Places
from leyden_traces.semantics import Fact
from leyden_traces.signals import Evidence, Tool, make_signals
from leyden_traces.tree import Tree

_NO_RULES = SignalRules()


def build_trajectory(
    *,
    run: str,
    group: str,
    episode: str,
    task: str,
    attempt: int,
    purpose: Purpose,
    reward: float,
    calls: int,
    transitions: Iterable[Transition],
    rewards: Mapping[str, float] | None = None,
    output: Any = None,
    facts: Iterable[Fact] = (),
    rules: SignalRules = _NO_RULES,
    call_rewards: Sequence[float] = (),
) -> Trajectory:
    """Return the trajectory of a closed attempt: `complete` only if calls 1..`calls` are all there.

    A span that was delivered twice counts once. Two different spans with one call number, or a call that the
    gateway never counted, make the trajectory `incomplete`: nobody can say which is true. Agents' spans never do:
    the same ones in any order, some of them twice, make the same trajectory.

    Args:
        run: of the attempt, as are `group`, `episode`, `task`, `attempt` and `purpose`.
        group: see `run`.
        episode: see `run`.
        task: see `run`.
        attempt: see `run`.
        purpose: see `run`.
        reward: the grader's.
        calls: how many replies the gateway counted.
        transitions: in any order, doubles allowed.
        rewards: named rewards, if the grader gave several.
        output: what the agent returned.
        facts: of the agent's own spans, in any order, doubles allowed.
        rules: how intermediate rewards are made.
        call_rewards: the grader's intermediate rewards, from call 1 on.

    Raises:
        ValueError: a transition is of another run, episode or attempt.
    """
    ordered, sound = _ordered(transitions, (run, episode, attempt))
    complete = sound and [transition.number for transition in ordered] == list(range(1, calls + 1))
    places = Places(Tree(facts), ordered)
    steps = [(fact, places.step(fact)) for fact in places.facts]
    tools = [Tool(step, fact) for fact, step in steps if step.kind == "tool"]
    replies = {call.number: fact for call in ordered if (fact := places.reply_of(call.number))}
    texts = places.texts()
    return Trajectory(
        run=run,
        group=group,
        episode=episode,
        task=task,
        attempt=attempt,
        purpose=purpose,
        reward=reward,
        rewards=dict(rewards or {}),
        verdict=_verdict(complete, calls, bool(texts)),
        transitions=tuple(map(places.call, ordered)),
        output=output,
        steps=tuple(step for _, step in steps),
        signals=make_signals(Evidence(ordered, tools, replies), rules, call_rewards),
        texts=texts,
    )


def _ordered(transitions: Iterable[Transition], owner: tuple[str, str, int]) -> tuple[tuple[Transition, ...], bool]:
    """Return the transitions by number, and whether none of them contradict each other."""
    found: dict[int, Transition] = {}
    sound = True
    for transition in transitions:
        identity = (transition.run, transition.episode, transition.attempt)
        if identity != owner:
            raise ValueError("{}/{}/{} is not {}/{}/{}".format(*identity, *owner))
        sound &= found.setdefault(transition.number, transition) == transition
    return tuple(found[number] for number in sorted(found)), sound


def _verdict(complete: bool, calls: int, texts: bool) -> Verdict:
    if not complete:
        return Verdict.INCOMPLETE
    return Verdict.TEXT_ONLY if texts and not calls else Verdict.COMPLETE
