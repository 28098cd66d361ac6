"""How the processes of one learner hear of each other.

That an order is there is said by torchrun's own key-value store, not by a collective: a follower may wait for days,
and no collective's time limit runs meanwhile. What is large then travels as a tensor of bytes.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from leyden_learner.processes.orders import Order, split

STUCK_AFTER = timedelta(minutes=30)
"""A process that keeps the others waiting inside a step for so long has hung: they end, and torchrun starts anew."""
LEADER_MISSING_S = 10.0
"""A follower told to stop waits so long for the leader's word."""
_LONGEST_PAUSE_S = 0.05
"""Between two looks of a follower that waits. At first they are shorter: a step follows upon its batch at once."""
_NOTE_BYTES = 1024
_STOP = "stop"


class TeammateFailed(Exception):
    """Another process could not do what was to be done; this one can go on."""


class TeamBroken(Exception):
    """The processes no longer do the same. All of them must end, and begin from the newest checkpoint."""


class Team:
    """This process's place among those that train together. Not for use from several threads at once."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self.rank = rank
        self.size = size
        self._orders = 0
        self._trainers = 0
        self._dropped: list[int] = []

    @classmethod
    def join(cls) -> "Team":
        """Meet the others, by the environment that torchrun has set."""
        store, rank, size = next(iter(dist.rendezvous("env://")))
        # Tensors on the CPU go by gloo, those on a GPU by nccl.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        # The store may outlive a restart, and what processes that ended have left in it must mean nothing to these.
        store = dist.PrefixStore(f"leyden-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=STUCK_AFTER)
        return cls(dist.PrefixStore("orders", store), rank, size)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def number_trainer(self) -> int:
        """Return a new trainer's number."""
        self._trainers += 1
        return self._trainers

    def forget(self, trainer: int) -> None:
        """Let the others drop a trainer with the next order."""
        self._dropped.append(trainer)

    def tell(self, kind: str, trainer: int, fields: dict[str, Any], blobs: dict[str, bytes]) -> None:
        """Give the next order; the leader then does it, too. Raises TeamBroken."""
        dropped, self._dropped = self._dropped, []
        order = Order(kind, trainer, fields, blobs, dropped)
        with broken_by("an order"):
            self._store.set(f"order-{self._orders}", order.header())
            self._send(b"".join(order.blobs.values()))

    def next_order(self, stopped: Event) -> Order | None:
        """Wait for the leader's next order; None: it is over. Raises TeamBroken."""
        key = f"order-{self._orders}"
        with broken_by("waiting for an order"):
            if not self._wait(key, stopped):
                return None
            header = json.loads(self._store.get(key))
            return split(header, self._receive(sum(header["sizes"].values())))

    def _wait(self, key: str, stopped: Event) -> bool:
        """Say whether the order came, and not the end."""
        # Not the store's own `wait`: it prints a warning at each time limit, and lets no signal through before.
        began, stopping = time.monotonic(), None
        while not self._store.check([key]):
            if self._store.check([_STOP]):
                return False
            now = time.monotonic()
            if stopped.is_set():
                stopping = stopping or now
                if now - stopping > LEADER_MISSING_S:
                    raise TeamBroken("told to stop, and nothing comes from rank 0 any more")
            time.sleep(min(_LONGEST_PAUSE_S, (now - began) / 20))
        return True

    def dismiss(self) -> None:
        """Tell the others that it is over; never raises, for they may be gone."""
        try:
            self._store.set(_STOP, b"1")
        except dist.DistError:
            return

    def agree(self, problem: str = "", proof: str = "") -> None:
        """End an order: all processes meet here, and hear each other's problems. The same number of times in each.

        `proof`, in hex, must be the same in all of them. Raises TeammateFailed, TeamBroken.
        """
        with broken_by("comparing notes"):
            notes = [json.loads(bytes(note.tolist()).rstrip(b"\0")) for note in self._notes(problem, proof)]
            if self.leads:
                # All have read it: nobody needs it any more.
                self._store.delete_key(f"order-{self._orders}")
        self._orders += 1
        failed = [f"rank {rank}: {note['problem']}" for rank, note in enumerate(notes) if note["problem"]]
        if failed:
            raise TeammateFailed("; ".join(failed))
        if len({note["proof"] for note in notes}) > 1:
            raise TeamBroken("the processes have made different weights from the same batch")

    def _notes(self, problem: str, proof: str) -> list[Tensor]:
        note = json.dumps({"problem": problem[: _NOTE_BYTES // 8], "proof": proof}).encode().ljust(_NOTE_BYTES, b"\0")
        every = [torch.zeros(_NOTE_BYTES, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(every, torch.frombuffer(bytearray(note), dtype=torch.uint8))
        return every

    def _send(self, body: bytes) -> None:
        if body:
            dist.broadcast(torch.frombuffer(bytearray(body), dtype=torch.uint8), src=0)

    def _receive(self, size: int) -> bytes:
        if not size:
            return b""
        body = torch.empty(size, dtype=torch.uint8)
        dist.broadcast(body, src=0)
        return body.numpy().tobytes()


@contextmanager
def broken_by(what: str) -> Iterator[None]:
    """Turn any error inside into TeamBroken: the others are not told, so they cannot go on together."""
    try:
        yield
    except TeamBroken:
        raise
    except Exception as error:
        raise TeamBroken(f"{what}: {type(error).__name__}: {error}") from error
