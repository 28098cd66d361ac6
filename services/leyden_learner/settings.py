"""The learner's settings."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from leyden_contracts import RunId
from leyden_learner.compute import Compute, Precision, Sharding
from leyden_learner.trackers.installed import TrackerName
from leyden_runtime.settings import CommonSettings


class LearnerSettings(CommonSettings):
    """What the learner reads from the environment, as LEYDEN_LEARNER_*."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_LEARNER_")

    port: int = Field(default=8104, ge=0, le=65535)
    models: Annotated[dict[str, Path], NoDecode] = {}
    """Base models: `name=folder,name=folder`. A run's `base_model` is one of the names."""
    model_path: Path | None = None
    """One more base model, named as its folder is."""
    run: RunId | None = None
    """Train only this run. None: every run there is, in turn."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: an accelerator if there is one."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of the training step."""
    precision: Precision = Precision.FLOAT32
    """Of the base model and of the step's products; the adapter stays in float32."""
    gradient_checkpointing: bool = False
    """Less memory for more time: the backward pass computes each layer once more."""
    shared_prefixes: bool = True
    """Compute what calls begin with in common once. Models that this does not fit are computed row by row anyway."""
    sharding: Sharding = Sharding.NONE
    """`fsdp2`: each process of several keeps only its share of the base model's layers."""
    poll_s: float = Field(default=0.2, gt=0)
    """How often runs that wait for groups are looked at."""
    tracker: TrackerName = "none"
    """Who else gets the figures of every version; addresses and secrets are the tracker's own variables."""

    @field_validator("models", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        if not all(name.strip() and folder.strip() for name, _, folder in pairs):
            raise ValueError("write `name=folder,name=folder`")
        return {name.strip(): folder.strip() for name, _, folder in pairs}

    @model_validator(mode="after")
    def _sharding_works(self) -> Self:
        if self.sharding is not Sharding.NONE and int(os.environ.get("WORLD_SIZE", "1")) < 2:
            raise ValueError(
                "LEYDEN_LEARNER_SHARDING: there is one process; start several with torchrun, or use `none`"
            )
        if self.sharding is not Sharding.NONE and self.gradient_checkpointing:
            raise ValueError(
                "LEYDEN_LEARNER_SHARDING: not with LEYDEN_LEARNER_GRADIENT_CHECKPOINTING: drop one of them"
            )
        return self

    @property
    def compute(self) -> Compute:
        """How steps are computed."""
        return Compute(self.precision, self.gradient_checkpointing, self.shared_prefixes, self.sharding)

    @property
    def base_models(self) -> dict[str, Path]:
        """Folders of the base models, by name."""
        one = {self.model_path.resolve().name: self.model_path} if self.model_path else {}
        return one | self.models
