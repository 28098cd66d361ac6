"""OTLP over gRPC: what is answered, and when."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from leyden_runtime.tokens import Scope
from support.collector import Answered, Served, export_grpc, serve_receiver
from support.spans import agent_span, broken_span, call_span, request, spans_of, transition

BODY = request(call_span(transition())).SerializeToString()
OK = grpc.StatusCode.OK


@pytest.fixture
async def served(signing_key: str) -> AsyncIterator[Served]:
    async with serve_receiver(signing_key) as served:
        yield served


@pytest.fixture
def gateway(served: Served) -> str:
    return served.tokens.mint(Scope.SPANS, 60)


def delay(answer: Answered) -> int:
    """Return the seconds of an error's RetryInfo; 0 if it has none."""
    if answer.status is None:
        return 0
    assert answer.status.code == answer.code.value[0]
    info = RetryInfo()
    assert answer.status.details[0].Unpack(info)
    return info.retry_delay.seconds


@pytest.mark.parametrize("compression", list(grpc.Compression))
async def test_spans_are_stored_and_noted_when_the_answer_is_ok(
    compression: grpc.Compression, served: Served, gateway: str
) -> None:
    answer = await export_grpc(served.grpc, BODY, gateway, compression)
    assert (answer.code, answer.body) == (OK, b"")
    ((key, data),) = served.store.objects.items()
    assert spans_of(data) == [call_span(transition())]
    assert [(note.call, note.segment) for note in served.notes.noted] == [(1, key)]


async def test_malformed_spans_are_refused_in_part(served: Served, gateway: str) -> None:
    body = request(call_span(transition(1)), broken_span(transition(2))).SerializeToString()
    answer = await export_grpc(served.grpc, body, gateway)
    assert (answer.code, answer.refused) == (OK, 1)
    assert "7 logprobs" in ExportTraceServiceResponse.FromString(answer.body).partial_success.error_message


@pytest.mark.parametrize("part", ["store", "notes"])
async def test_what_is_not_durable_is_unavailable_for_a_while(part: str, served: Served, gateway: str) -> None:
    getattr(served, part).down = True
    answer = await export_grpc(served.grpc, BODY, gateway)
    assert (answer.code, delay(answer)) == (grpc.StatusCode.UNAVAILABLE, 1)
    getattr(served, part).down = False
    assert (await export_grpc(served.grpc, BODY, gateway)).code is OK


async def test_who_may_not_send_is_told_before_the_message_is_read(served: Served) -> None:
    user = served.tokens.mint(Scope.API, 60)
    nobody = served.tokens.mint(Scope.ATTEMPT, 60, run="run-a")
    answers = [await export_grpc(served.grpc, b"\xff" * 100, token) for token in (None, "nonsense", user, nobody)]
    unknown, forbidden = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    assert [answer.code for answer in answers] == [unknown, unknown, forbidden, forbidden]
    assert [delay(answer) for answer in answers] == [0] * 4


async def test_no_request_and_no_method(served: Served, gateway: str) -> None:
    assert (await export_grpc(served.grpc, b"\xff\xff", gateway)).code is grpc.StatusCode.INVALID_ARGUMENT
    async with grpc.aio.insecure_channel(served.grpc) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")(b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("compression", list(grpc.Compression))
async def test_a_large_message_is_refused_also_where_it_is_small_on_the_way(
    compression: grpc.Compression, signing_key: str
) -> None:
    async with serve_receiver(signing_key, max_message_bytes=10_000) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        large = request(agent_span("a" * 20_000, leyden__run="run-a")).SerializeToString()
        answer = await export_grpc(served.grpc, large, token, compression)
        assert (answer.code, delay(answer)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 0)
        assert served.store.objects == {}
        assert (await export_grpc(served.grpc, BODY, token)).code is OK


async def test_beyond_the_bytes_in_flight_senders_are_told_when_to_come_again(signing_key: str) -> None:
    async with serve_receiver(signing_key, max_inflight_bytes=len(BODY) + 1024, store_timeout_s=20) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        served.store.gate.clear()
        waiting = {asyncio.create_task(export_grpc(served.grpc, BODY, token)) for _ in range(10)}
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answer = done.pop().result()
        assert (answer.code, delay(answer)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1)
        served.store.gate.set()
        codes = [answer.code for answer in await asyncio.gather(*waiting)]
        assert OK in codes
        assert (await export_grpc(served.grpc, BODY, token)).code is OK


async def test_a_sender_that_waits_no_longer_leaves_nothing_held(signing_key: str) -> None:
    """Its spans are stored all the same; it will send them again, and they collapse."""
    async with serve_receiver(signing_key, store_timeout_s=20) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        served.store.gate.clear()
        answer = await export_grpc(served.grpc, BODY, token, timeout=0.3)
        assert answer.code is grpc.StatusCode.DEADLINE_EXCEEDED
        served.store.gate.set()
        assert (await export_grpc(served.grpc, BODY, token)).code is OK
        async with served.client.get(f"{served.url}/metrics") as metrics:
            assert "leyden_collector_inflight_bytes 0.0" in await metrics.text()


async def test_senders_that_stall_do_not_hold_up_others_for_long(signing_key: str) -> None:
    async with serve_receiver(signing_key, grpc_readers=1, read_timeout_s=0.2) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        async with grpc.aio.insecure_channel(served.grpc) as channel:
            from leyden_collector.grpc_receiver import METHOD

            stalled = channel.stream_unary(METHOD)(metadata=[("authorization", f"Bearer {token}")])
            assert await stalled.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await export_grpc(served.grpc, BODY, token)).code is OK


async def test_both_ways_share_one_answer(served: Served, gateway: str) -> None:
    body = request(call_span(transition(1)), broken_span(transition(2)), agent_span()).SerializeToString()
    status, answer, _ = await served.post(body, gateway)
    assert status == 200
    assert (await export_grpc(served.grpc, body, gateway)).body == answer
