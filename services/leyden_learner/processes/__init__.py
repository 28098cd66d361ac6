"""One learner in several processes, as torchrun or accelerate starts them.

Rank 0 leads: it alone talks to the ledger and the object store, commits, publishes, and serves /metrics. The others
follow: each holds the same training state and repeats what the leader does to its own. `team` passes orders on,
`leading` is the trainer that gives them, `following` obeys. Nothing is pickled: an order is JSON and plain bytes.
"""

from leyden_learner.processes.following import Follower
from leyden_learner.processes.leading import LeadingTrainer
from leyden_learner.processes.team import Team, TeamBroken, TeammateFailed

__all__ = ["Follower", "LeadingTrainer", "Team", "TeamBroken", "TeammateFailed"]
