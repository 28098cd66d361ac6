"""A real vLLM on the CPU, from its own environment (`just setup-vllm`)."""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.servers import find_port, process, wait_for

PYTHON = Path(__file__).parents[2] / ".venv-vllm/bin/python"
API_KEY = "vllm-test-key"
_SETTINGS = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


@contextmanager
def vllm_server(model: Path, name: str, folder: Path, core: int | None = None) -> Iterator[str]:
    """Serve `model` as `name`, with LoRA, on one core if need be; yields the base URL without `/v1`."""
    port = find_port()
    flags = {
        "model": str(model),
        "served-model-name": name,
        "host": "127.0.0.1",
        "port": str(port),
        "api-key": API_KEY,
        "max-loras": "4",
        "max-cpu-loras": "16",
        "max-lora-rank": "16",
        "max-model-len": "512",
        "max-num-seqs": "32",
        "dtype": "float32",
        "tool-call-parser": "hermes",
        # The distribution that is sampled, and no sampling defaults from the model's own files.
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
    }
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--enable-lora", "--enable-auto-tool-choice"]
    command += [part for flag, value in flags.items() for part in (f"--{flag}", value)]
    url = f"http://127.0.0.1:{port}"
    # Two that share their cores wait for each other's threads most of the time.
    bound = {} if core is None else {"VLLM_CPU_OMP_THREADS_BIND": str(core), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **_SETTINGS, **bound}
    with process(command, folder / "vllm.log", env=environment, start_new_session=True) as server:
        wait_for(lambda: _healthy(url) or server.poll() is not None, 240, "vLLM")
        if server.poll() is not None:
            raise RuntimeError(f"vLLM ended with code {server.returncode}: {(folder / 'vllm.log').read_text()[-2000:]}")
        yield url


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as response:
            return response.status == 200
    except OSError:
        return False
