"""Where staleness is decided: may a trajectory of an older policy version still be trained on (I3)?"""


def is_stale(policy_version: int, learner_version: int, max_staleness: int) -> bool:
    """Say whether tokens sampled from `policy_version` are too old to train `learner_version` further."""
    return policy_version < learner_version - max_staleness
