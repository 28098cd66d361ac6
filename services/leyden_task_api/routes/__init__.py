"""The routes, a file for each kind of thing. `ROUTERS` lists them."""

from leyden_task_api.routes import episodes, events, open_paths, results, runs, tasks, versions

ROUTERS = (
    open_paths.router,
    runs.router,
    tasks.router,
    episodes.router,
    results.router,
    versions.router,
    events.router,
)
