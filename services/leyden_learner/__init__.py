"""The learner: groups of trajectories in, LoRA checkpoints out.

`loop` is the main loop; `run_training` is one run's way from its newest checkpoint to its last group. `batch` decides
what is trained on (and `staleness` what is too old), `critics` judge calls where a run asks for it, `trainer` takes the
step, `checkpoint` makes it one commit.
"""
