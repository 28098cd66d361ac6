"""Two roles: a planner answers at once or hands over to a solver, which costs a little.

Of the two clues the planner is shown the first: half of its values are easy, and answering at once is then right; it
is wrong otherwise. The solver is shown the second, and must say which of four answers it stands for. Neither reaches
the best reward alone, and the solver is called only where the planner says so.
"""

from pathlib import Path
from random import Random

from learning.environments import tiny
from learning.playing import Ask, Environment, Outcome, Program

CLUES = 6
HANDING_OVER = 0.2
"""What asking the solver costs."""
_PLAN, _SOLVE, _KIND, _QUESTION = 1, 2, 8, 20
PLANS = 2


def make(seed: int, folder: Path) -> Environment:
    """Return the environment of this seed: what is easy, the answers, the split of tasks and the model."""
    rng = Random(f"plans-{seed}")
    easy = frozenset(rng.sample(range(CLUES), CLUES // 2))
    answers = tuple(rng.randrange(tiny.CHOICES) for _ in range(CLUES))
    train, held_out = tiny.split((CLUES, CLUES), 0.25, rng)
    return Environment(tiny.save(folder, seed), train, held_out, lambda clues, _: program(easy, answers, clues))


def program(easy: frozenset[int], answers: tuple[int, ...], clues: tuple[int, ...]) -> Program:
    """Plan, and solve where the plan says so."""
    kind, question = clues
    plan = yield Ask("planner", [_PLAN, _KIND + kind])
    if plan.tokens[0] % PLANS == 0:
        reward = float(kind in easy)
        return Outcome(reward, reward)
    answer = yield Ask("solver", [_SOLVE, _QUESTION + question])
    reward = (1 - HANDING_OVER) * (answer.tokens[0] % tiny.CHOICES == answers[question])
    return Outcome(reward, reward)
