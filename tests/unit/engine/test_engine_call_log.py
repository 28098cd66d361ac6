"""The log's logprobs are the very bits that the engine sampled with."""

import json
import struct
from pathlib import Path

import torch

from leyden_engine.call_log import CallLog
from leyden_engine.job import Job, Sampling


def test_lines_are_exact_and_there_at_once(tmp_path: Path) -> None:
    logprobs = torch.randn(50).sigmoid().log()
    job = Job([1, 2], None, Sampling(temperature=0.7))
    job.tokens, job.logprobs = list(range(50)), logprobs.tolist()
    file = tmp_path / "deep" / "calls.jsonl"
    log = CallLog(file)
    log.write("chatcmpl-1", "base", job)
    (line,) = map(json.loads, file.read_text().splitlines())
    assert bytes.fromhex(line["logprobs"]) == logprobs.numpy().astype("<f4").tobytes()
    assert (line["response_id"], line["model"], line["temperature"]) == ("chatcmpl-1", "base", 0.7)
    assert (line["prompt_token_ids"], line["response_token_ids"]) == ([1, 2], list(range(50)))
    # What travels as JSON comes back to the same float32.
    assert struct.pack("<50f", *json.loads(json.dumps(job.logprobs))) == bytes.fromhex(line["logprobs"])
    log.close()
    again = CallLog(file)
    again.write("chatcmpl-2", "base", job)
    assert len(file.read_text().splitlines()) == 2
