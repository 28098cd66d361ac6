"""The routes, a file for each kind of thing. `ROUTERS` lists them."""

from leyden_task_api.routes import (
    episodes,
    events,
    open_paths,
    quarantine,
    regrades,
    results,
    runs,
    starts,
    tasks,
    trajectories,
    versions,
)

ROUTERS = (
    open_paths.router,
    runs.router,
    starts.router,
    tasks.router,
    episodes.router,
    # Before the results: `export` is no episode.
    trajectories.router,
    regrades.router,
    quarantine.router,
    results.router,
    versions.router,
    events.router,
)
