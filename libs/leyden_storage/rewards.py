"""Reward versions as objects, each written once."""

from pydantic import ValidationError

from leyden_contracts import RewardVersion
from leyden_storage.base import ObjectStore, StoreError
from leyden_storage.keys import rewards_key, rewards_prefix


def write_rewards(store: ObjectStore, rewards: RewardVersion) -> RewardVersion:
    """Store a version once; return the one of that name that is stored, which may be another. Raises StoreError."""
    key = rewards_key(rewards.run, rewards.version)
    if store.create(key, rewards.model_dump_json().encode()):
        return rewards
    return read_rewards(store, rewards.run, rewards.version)


def read_rewards(store: ObjectStore, run: str, version: str) -> RewardVersion:
    """Return a version. Raises ObjectNotFound, StoreError."""
    key = rewards_key(run, version)
    try:
        return RewardVersion.model_validate_json(store.get(key))
    except ValidationError as error:
        raise StoreError(f"{key} is damaged: {error}") from error


def reward_versions(store: ObjectStore, run: str) -> list[str]:
    """Return the names of a run's versions, in alphabetical order. Raises StoreError."""
    prefix = rewards_prefix(run)
    return [key.removeprefix(prefix).removesuffix(".json") for key in store.list(prefix)]
