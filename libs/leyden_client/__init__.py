"""The Python client of the task API, and the `leyden` command. Start with `client.py`."""

from leyden_client.client import LeydenClient
from leyden_client.errors import ApiError, ApiUnreachable, InputError
from leyden_client.evaluate import EvalResult, evaluate

__all__ = ["ApiError", "ApiUnreachable", "EvalResult", "InputError", "LeydenClient", "evaluate"]
