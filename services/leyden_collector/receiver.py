"""POST /v1/traces: OTLP over HTTP. Durable, then 200."""

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from leyden_collector import otlp_json
from leyden_collector.body import ENCODINGS, read_body
from leyden_collector.budget import Budget
from leyden_collector.export import Export
from leyden_collector.refusal import Refused
from leyden_collector.settings import CollectorSettings
from leyden_collector.status import JSON, PROTOBUF, error_response


class Receiver:
    """Takes requests over HTTP."""

    def __init__(self, export: Export, budget: Budget, settings: CollectorSettings) -> None:
        self._export = export
        self._budget = budget
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        """Return what this serves."""
        return [web.post("/v1/traces", self.traces)]

    async def traces(self, request: web.Request) -> web.Response:
        """Answer one export request."""
        try:
            return await self._answer(request)
        except Refused as error:
            return error_response(request.content_type, error, self._settings.retry_after_s)

    async def _answer(self, request: web.Request) -> web.Response:
        claims = self._export.claims(request.headers.get("Authorization", ""))
        _check_headers(request)
        settings = self._settings
        with self._budget.hold() as hold:
            body = await read_body(request, hold, settings.max_body_bytes, settings.read_timeout_s)
            if request.content_type == JSON:
                body = otlp_json.to_protobuf(body, settings.max_json_values)
            answer = await self._export.answer(body, claims)
        return _response(answer, request.content_type)


def _response(answer: ExportTraceServiceResponse, content_type: str) -> web.Response:
    body = otlp_json.from_protobuf(answer) if content_type == JSON else answer.SerializeToString()
    return web.Response(body=body, content_type=content_type)


def _check_headers(request: web.Request) -> None:
    if request.content_type not in (PROTOBUF, JSON):
        raise Refused(415, f"Content-Type {request.content_type} is not supported; send {PROTOBUF} or {JSON}")
    if request.headers.get("Content-Encoding", "").strip().lower() not in ENCODINGS:
        raise Refused(415, "of Content-Encoding, gzip, deflate and identity are supported")
