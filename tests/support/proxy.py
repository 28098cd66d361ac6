"""A TCP proxy in a thread, that can hold, delay and cut connections: faults between two processes."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator


class Proxy:
    """Passes bytes between its port and `target`. Clear `requests` or `replies` to hold that direction."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = threading.Event()
        self.replies = threading.Event()
        self.requests.set()
        self.replies.set()
        self.held = threading.Event()
        """Set once bytes have been held back."""
        self.delay_s = 0.0
        """How long each piece is held up, in both directions."""
        self.cuts = 0
        """Connections that were cut."""
        self._open: set[tuple[socket.socket, socket.socket]] = set()

    def serve(self) -> None:
        """Accept until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._open.add((client, server))
            for source, sink, flow in ((client, server, self.requests), (server, client, self.replies)):
                threading.Thread(target=self._pump, args=(source, sink, flow), daemon=True).start()

    def cut(self) -> None:
        """Reset every open connection (RST to both sides)."""
        while self._open:
            pair = self._open.pop()
            self.cuts += 1
            for end in pair:
                with contextlib.suppress(OSError):
                    # Closing with this option set sends a reset in place of a farewell.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self) -> None:
        """Stop accepting, and let held bytes go."""
        self._listener.close()
        self.requests.set()
        self.replies.set()

    def _pump(self, source: socket.socket, sink: socket.socket, flow: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not flow.is_set():
                    self.held.set()
                    flow.wait()
                if self.delay_s:
                    time.sleep(self.delay_s)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy to `host:port` for the length of the block."""
    proxy = Proxy((host, port))
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
