"""The engine's settings."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from leyden_runtime.settings import CommonSettings


class EngineSettings(CommonSettings):
    """Read from LEYDEN_ENGINE_*, besides the settings common to all services. Lengths in tokens."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_ENGINE_")

    port: int = Field(default=8200, ge=0, le=65535)
    model: Path
    """Folder of the base model: config, safetensors, tokenizer with a chat template."""
    served_name: str = Field(min_length=1)
    """The name that requests use for the base model."""
    device: str = "cpu"
    """As torch names it: `cpu`, `cuda`, `cuda:1`."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: int = Field(default=1, ge=1)
    """Of torch, on the CPU. With busy cores more than one is slower."""
    max_batch: int = Field(default=64, ge=1)
    """Sequences that are generated at the same time."""
    kept_sequences: int = Field(default=64, ge=0)
    """Ended sequences that are kept in memory, so that prompts that begin alike are computed once. 0: none."""
    max_waiting: int = Field(default=1024, ge=1)
    """Requests that wait for a place in the batch; beyond it they get 503."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Prompt and reply together. None: what the model was made for."""
    max_adapters: int = Field(default=64, ge=0)
    """Adapters loaded at the same time."""
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)
    call_log: Path | None = None
    """JSON lines: the tokens of every reply, written before it leaves. None: no log."""
