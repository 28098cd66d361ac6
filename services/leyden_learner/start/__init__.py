"""A run's start: what makes version 1 before any episode, so that reinforcement learning begins from a warm adapter.

    lines          uploaded conversations and pairs                    lines.py, by the chat template: chat.py
    trajectories   those of another run, with their own tokens         stored.py
    units          what is learned from, for each role                 units.py, data.py
    lesson         the optimizer steps of one role                     lesson.py, losses.py
    version 1      probes, files and manifest, in one commit           version.py
    work           all of these, in order                              work.py
    the run        one step after another, then RunTraining            run_start.py

Nothing is stored before version 1 is committed: after a crash the start is made again, from the beginning, and comes to
the same weights.
"""

from leyden_learner.start.errors import StartRefused
from leyden_learner.start.run_start import RunStart, resume

__all__ = ["RunStart", "StartRefused", "resume"]
