"""Patience: what is repeated, how long, and what is said when it ends."""

import io
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leyden_client.errors import ApiError, ApiUnreachable
from leyden_client.transport import Transport


class Scripted(ThreadingHTTPServer):
    """Answers with `answers` one after the other (status, headers), then with 200 for ever."""

    answers: list[tuple[int, dict[str, str]]]
    bodies: list[tuple[float, bytes]]
    pause_s = 0.0

    def handle_error(self, *_: object) -> None:
        """A client that has gone is part of the test."""


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((time.monotonic(), body))
        time.sleep(self.server.pause_s)
        status, headers = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "4"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"text")

    def do_GET(self) -> None:
        """Break off after some bytes, for each of `answers`; then send "whole"."""
        self.send_response(200)
        cut = bool(self.server.answers and self.server.answers.pop())
        self.send_header("Content-Length", "100" if cut else "5")
        self.end_headers()
        self.wfile.write(b"the beginning" if cut else b"whole")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Scripted]:
    server = Scripted(("127.0.0.1", 0), Handler)
    server.answers, server.bodies = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def send(server: Scripted, patience_s: float = 5, timeout_s: float = 5, **more: object) -> bytes:
    transport = Transport(f"http://127.0.0.1:{server.server_port}", "t", patience_s=patience_s, timeout_s=timeout_s)
    try:
        headers = {"Content-Length": "6"}
        return transport.send("POST", "/", body=lambda: iter([b"abc", b"def"]), headers=headers, **more).content
    finally:
        transport.close()


def test_what_is_full_is_asked_again_when_it_said(server: Scripted) -> None:
    server.answers = [(429, {"Retry-After": "1"}), (503, {})]
    assert send(server) == b"text"
    (first, one), (second, two), (third, three) = server.bodies
    assert one == two == three == b"abcdef"
    assert 1 <= second - first < 2 and 0.1 <= third - second < 1


@pytest.mark.parametrize(("status", "error"), [(429, ApiError), (503, ApiUnreachable)])
def test_what_stays_so_longer_than_the_patience_is_said(server: Scripted, status: int, error: type) -> None:
    server.answers = [(status, {"Retry-After": "1"})] * 50
    with pytest.raises(error, match=str(status)):
        send(server, patience_s=1.5)
    assert len(server.bodies) == 2


def test_a_pause_longer_than_the_patience_is_not_waited_for(server: Scripted) -> None:
    server.answers = [(429, {"Retry-After": "60"})]
    with pytest.raises(ApiError):
        send(server)


def test_refusals_are_not_repeated(server: Scripted) -> None:
    server.answers = [(409, {})]
    with pytest.raises(ApiError, match="409"):
        send(server)
    assert len(server.bodies) == 1


def test_the_patience_counts_from_the_first_failure(server: Scripted) -> None:
    server.pause_s, server.answers = 0.5, [(503, {})]
    assert send(server, patience_s=0.3) == b"text"


def test_an_answer_may_take_longer_than_usual_where_it_is_known_to(server: Scripted) -> None:
    server.pause_s = 0.6
    assert send(server, timeout_s=0.2, answer_s=3) == b"text"
    with pytest.raises(ApiUnreachable):
        send(server, timeout_s=0.2, patience_s=0)


def test_a_download_that_breaks_off_begins_anew(server: Scripted) -> None:
    server.answers = [(200, {})]
    file = io.BytesIO()
    transport = Transport(f"http://127.0.0.1:{server.server_port}", "t", patience_s=5)
    transport.download("/", {"rewards": None}, file, 5)
    transport.close()
    assert file.getvalue() == b"whole" and server.answers == []
