"""Imports an agent once for all attempts, unless the import itself reads what differs between attempts.

`client = OpenAI()` at the top of a module keeps the key it finds there. An agent like that is imported anew in each
attempt's process instead; everything it needs from elsewhere is still imported once, here.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType

from leyden_agents.contract import Function, load_function


@contextlib.contextmanager
def watched(variables: Collection[str]) -> Iterator[set[str]]:
    """Yield a set that gathers the packages whose module-level code reads one of the environment `variables`."""
    readers: set[str] = set()
    plain = type(os.environ)

    class Watched(plain):  # type: ignore[misc, valid-type]
        def __getitem__(self, name: str) -> str:
            if name in variables:
                readers.update(_importing(sys._getframe(1)))
            return super().__getitem__(name)

    os.environ.__class__ = Watched
    try:
        yield readers
    finally:
        os.environ.__class__ = plain


def import_early(reference: str, variables: Collection[str]) -> tuple[Function, list[str]]:
    """Import `reference`; return it, and the modules to import early instead of it if it must come late, or none.

    Raises:
        AgentNotFound: it cannot be imported.
    """
    with watched(variables) as readers:
        function = load_function(reference)
    if not readers:
        return function, []
    import sysconfig  # not for those who do not need it: see warm_parent.py

    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    late = readers | {reference.partition(":")[0].partition(".")[0]}
    return function, [name for name in sys.modules if _under(installed, name) and name.partition(".")[0] not in late]


def import_modules(names: Collection[str]) -> None:
    """Import what can be imported of `names`; what fails here fails again, and loudly, where it is needed."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def lazily(load: Callable[[], Function]) -> Function:
    """Return a function that is loaded when it is called."""
    return lambda *arguments: load()(*arguments)


def _importing(frame: FrameType | None) -> Iterator[str]:
    # The innermost module that is being imported is the one that keeps the value; `__main__` is this process's own.
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and name != "__main__":
            yield name.partition(".")[0]
            return
        frame = frame.f_back


def _under(folders: tuple[str, ...], name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)
    origin = getattr(spec, "origin", None)
    return isinstance(origin, str) and origin.startswith(folders)
