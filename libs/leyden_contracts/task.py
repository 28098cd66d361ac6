"""Tasks: the inputs that agents run on."""

from typing import Any, Literal

from pydantic import Field

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, content_id


class TaskInput(Message):
    """One task as the user writes it: one JSON object, or one line of a JSONL file."""

    input: Any
    """What the agent is called with. Any JSON value."""
    expected: Any = None
    """What only the grader sees. Any JSON value; never reaches the agent."""
    tags: dict[str, str] = {}
    """Free labels, shown with the episode (for instance `{"length": "long"}`)."""


class Task(TaskInput):
    """A stored task. Its id is the hash of its content."""

    id: ObjectId

    @classmethod
    def of(cls, task: TaskInput) -> "Task":
        """Return `task` with its id."""
        body = task.model_dump(mode="json")
        return cls(id=content_id(body), **body)


class TaskUpload(Message):
    """What one upload of tasks asks for (query parameters of `POST /v1/runs/{run}/tasks`)."""

    purpose: Literal["train", "eval", "held_out"] = "train"
    """`train` episodes are announced to the learner; `eval` ones never are. `held_out` tasks make no episodes now: the
    run's `evaluation` runs them on its versions."""
    samples: int | None = Field(default=None, ge=1, le=256)
    """Episodes for each task. None: the run's `group_size` for training, 1 for evaluation. For held-out tasks:
    those of each version."""
    policy_version: int | None = Field(default=None, ge=0)
    """Evaluate this version. None: the latest that is ready when the episode makes its first call. Only for `eval`."""
