"""Where spans become a trajectory: the transitions of one attempt, in call order, with a verdict."""

from collections.abc import Iterable, Mapping
from typing import Any

from leyden_contracts import Purpose, Trajectory, Transition, Verdict


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
) -> Trajectory:
    """Return the trajectory of a closed attempt: `complete` only if calls 1..`calls` are all there.

    A span that was delivered twice counts once. Two different spans with one call number, or a call that the
    gateway never counted, make the trajectory `incomplete`: nobody can say which is true.

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

    Raises:
        ValueError: a transition is of another run, episode or attempt.
    """
    found: dict[int, Transition] = {}
    sound = True
    for transition in transitions:
        if (transition.run, transition.episode, transition.attempt) != (run, episode, attempt):
            raise ValueError(
                f"{transition.run}/{transition.episode}/{transition.attempt} is not {run}/{episode}/{attempt}"
            )
        sound &= found.setdefault(transition.number, transition) == transition
    ordered = tuple(found[number] for number in sorted(found))
    complete = sound and [transition.number for transition in ordered] == list(range(1, calls + 1))
    return Trajectory(
        run=run,
        group=group,
        episode=episode,
        task=task,
        attempt=attempt,
        purpose=purpose,
        reward=reward,
        rewards=dict(rewards or {}),
        verdict=Verdict.COMPLETE if complete else Verdict.INCOMPLETE,
        transitions=ordered,
        output=output,
    )
