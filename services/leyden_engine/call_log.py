"""The engine's own record of every reply, for whoever must prove that nothing changed a token on its way."""

import json
import struct
from pathlib import Path

from leyden_engine.job import Job


class CallLog:
    """Appends JSON lines to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")

    def write(self, response_id: str, model: str, job: Job) -> None:
        """Record a reply. Returns once the operating system has the line, which outlives this process."""
        line = {
            "response_id": response_id,
            "model": model,
            "prompt_token_ids": job.prompt,
            "response_token_ids": job.tokens,
            # Packed as on spans: float32, little-endian, in hex. Exact by construction.
            "logprobs": struct.pack(f"<{len(job.logprobs)}f", *job.logprobs).hex(),
            "temperature": job.sampling.temperature,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
