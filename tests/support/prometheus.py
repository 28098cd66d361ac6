"""A real Prometheus that scrapes a deployment."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.servers import find_port, process, wait_for


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, int]) -> Iterator[str]:
    """Scrape `targets` (service -> port) each second; yields Prometheus' URL."""
    binary = shutil.which("prometheus")
    assert binary, "there is no `prometheus` here: `just servers` installs it"
    scrape = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for name, port in targets.items()
    ]
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrape}))
    port = find_port()
    flags = {
        "config.file": str(config),
        "storage.tsdb.path": str(folder / "prometheus"),
        "web.listen-address": f"127.0.0.1:{port}",
    }
    url = f"http://127.0.0.1:{port}"
    with process([binary, *(f"--{name}={value}" for name, value in flags.items())], folder / "prometheus.log"):
        wait_for(lambda: _ready(url), 60, "Prometheus")
        yield url


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the series that `expression` selects now."""
    asked = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=10) as response:
        return json.load(response)["data"]["result"]


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as response:
            return response.status == 200
    except OSError:
        return False
