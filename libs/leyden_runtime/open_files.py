"""How many files and sockets this process may have open: the usual limit, 1,024, ends a busy server."""

import resource


def allow_open_files(wanted: int) -> int:
    """Raise this process's own limit to `wanted`, as far as the system lets it; return what it now is.

    A limit that is higher already stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = resource.RLIM_INFINITY
    if soft == unbounded:
        return wanted
    target = max(soft, wanted if hard == unbounded else min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target
