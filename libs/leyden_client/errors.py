"""What can go wrong for the client's user."""

from collections.abc import Sequence

from leyden_contracts import Problem


class ClientError(Exception):
    """Something that is said in a line or two, without a traceback."""

    exit_code = 1

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)
        """One for each fault, where there are several."""


class InputError(ClientError):
    """A file, an option or a setting is not usable."""

    exit_code = 2


class ApiUnreachable(ClientError):
    """The task API did not answer in time, or is not available."""


class RunStalled(ClientError):
    """Nothing moves, and it is known why."""


class ApiError(ClientError):
    """The task API refused a request."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title}: {problem.detail}", problem.errors)
        self.problem = problem
        self.exit_code = 2 if problem.status < 500 else 1
