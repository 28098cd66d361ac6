"""Whatever arrives, its sender is told what is wrong with it; nothing fails, and segments stay readable."""

import asyncio
import threading
from collections.abc import Iterator

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from leyden_runtime.tokens import Scope
from support import otlp_fuzz
from support.collector import Served, export_grpc, serve_receiver

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
JSON = {"Content-Type": "application/json"}


class Driver:
    """A receiver on a loop of its own, so that hypothesis, which knows no loops, can drive it."""

    def __init__(self, signing_key: str) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self._serving = serve_receiver(signing_key, flush_ms=0, max_inflight_bytes=2**24)
        self.served: Served = self.run(self._serving.__aenter__())
        mint = self.served.tokens.mint
        self.tokens = [mint(Scope.SPANS, 600), mint(Scope.ATTEMPT, 600, run="run-a", episode="g-0.0", attempt=1)]

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.run(self._serving.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)

    def segments_can_be_read(self) -> None:
        for key, data in self.served.store.objects.items():
            if "/segments/" in key:
                ExportTraceServiceRequest.FromString(data)
        self.served.store.objects.clear()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver("k" * 40)
    yield driver
    driver.close()


@FUZZ
@given(otlp_fuzz.PROTOBUF)
def test_protobuf_over_http(driver: Driver, body: bytes) -> None:
    for token in driver.tokens:
        status, *_ = driver.run(driver.served.post(body, token))
        assert status in (200, 400, 413)
    driver.segments_can_be_read()


@FUZZ
@given(otlp_fuzz.JSON)
def test_json_over_http(driver: Driver, body: bytes) -> None:
    for token in driver.tokens:
        status, *_ = driver.run(driver.served.post(body, token, JSON))
        assert status in (200, 400, 413)
    driver.segments_can_be_read()


@settings(FUZZ, max_examples=60)
@given(otlp_fuzz.PROTOBUF)
def test_protobuf_over_grpc(driver: Driver, body: bytes) -> None:
    for token in driver.tokens:
        answer = driver.run(export_grpc(driver.served.grpc, body, token))
        assert answer.code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
    driver.segments_can_be_read()
