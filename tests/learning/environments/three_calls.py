"""Three doors behind luck: each call opens a door or not, and the one reward at the end is mostly luck.

The world draws luck first, and every call is shown it, its own clue, and which doors are open so far. A clue says which
of four keys fits, by a table drawn from the seed. The reward is `LUCK` for good luck plus `DOOR` for each open
door: comparing whole episodes, a call is credited with luck and with the other doors; comparing calls that were shown
the same, it is not.
"""

from pathlib import Path
from random import Random

from learning.environments import tiny
from learning.playing import Ask, Environment, Outcome, Program

DOORS, CLUES = 3, 6
LUCK, DOOR = 0.55, 0.15
SIGNAL = 0.5
"""What a rule that watches the doors gives the call that opened one."""
_CALL, _DOOR, _LUCK, _CLUE = 1, 4, 6, 8
"""First token of each kind; clues come last."""

Keys = tuple[tuple[int, ...], ...]
"""Door -> clue -> the key that fits."""


def make(seed: int, folder: Path) -> Environment:
    """Return the environment of this seed: its keys, its split of tasks and its model."""
    rng = Random(f"doors-{seed}")
    keys = tuple(tuple(rng.randrange(tiny.CHOICES) for _ in range(CLUES)) for _ in range(DOORS))
    train, held_out = tiny.split((CLUES,) * DOORS, 0.25, rng)
    return Environment(tiny.save(folder, seed), train, held_out, lambda clues, world: program(keys, clues, world))


def program(keys: Keys, clues: tuple[int, ...], world: Random) -> Program:
    """Go through the doors; an episode ends after the third, open or not."""
    luck = world.randrange(2)
    doors: list[int] = []
    for number, clue in enumerate(clues):
        shown = [_DOOR + one for one in doors]
        job = yield Ask("policy", [_CALL + number, _LUCK + luck, *shown, _CLUE + number * CLUES + clue])
        doors.append(int(job.tokens[0] % tiny.CHOICES == keys[number][clue]))
    signals = tuple(SIGNAL * one for one in doors)
    return Outcome(LUCK * luck + DOOR * sum(doors), sum(doors) / DOORS, signals)
