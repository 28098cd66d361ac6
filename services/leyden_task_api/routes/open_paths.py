"""What needs no token: health and metrics."""

import prometheus_client
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def health() -> PlainTextResponse:
    """Say that the process lives."""
    return PlainTextResponse("ok")


@router.get("/metrics")
async def metrics() -> Response:
    """Return Prometheus metrics."""
    body = prometheus_client.generate_latest()
    return Response(body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
