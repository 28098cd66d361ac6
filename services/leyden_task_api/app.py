"""The FastAPI application."""

from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from leyden_contracts import Problem, TaskInput
from leyden_task_api import problems
from leyden_task_api.middleware import Authorise, Count, LimitBody
from leyden_task_api.parts import Parts
from leyden_task_api.routes import ROUTERS


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the document, with the bodies that routes read by hand."""
        document = super().openapi()
        schemas = document["components"]["schemas"]
        for model in (TaskInput, Problem):
            schemas.setdefault(model.__name__, model.model_json_schema())
        return document


def create_app(parts: Parts) -> FastAPI:
    """Return the application around `parts`."""
    middleware = [
        Middleware(Count),
        Middleware(Authorise, tokens=parts.tokens),
        Middleware(LimitBody, settings=parts.settings),
    ]
    app = _Api(title="Leyden", version="0.1.0", redoc_url=None, middleware=middleware)
    app.state.parts = parts
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app
