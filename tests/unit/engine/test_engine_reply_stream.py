"""What a streamed reply sends while the model thread is between two of its steps."""

from typing import Any

from leyden_engine.job import Job, Sampling
from leyden_engine.protocol import ChatRequest
from leyden_engine.streams import ReplyStream


class Letters:
    """A tokenizer whose ids are characters."""

    def decode(self, ids: list[int], *, keep_special: bool = False) -> str:
        return "".join(map(chr, ids))


class Heard(ReplyStream):
    """Keeps what would be sent."""

    said = ""

    async def _write(self, event: dict[str, Any]) -> None:
        self.said += event["choices"][0]["delta"].get("content") or ""


async def test_a_stop_string_is_never_sent() -> None:
    """The token that completes it is there before the model thread has said that the job is over."""
    for stop in (".", "t.", ". B"):
        body = ChatRequest(model="m", messages=[{"role": "user", "content": "?"}], stop=[stop], stream=True)
        heard = Heard(None, body, "r", Letters())  # type: ignore[arg-type]
        job = Job([1], None, Sampling(stop=(stop,)))
        for letter in "Wait. But":
            job.tokens.append(ord(letter))
            job.logprobs.append(-1.0)
            await heard.progress(job)
        assert heard.said == "Wait. But".partition(stop)[0]
