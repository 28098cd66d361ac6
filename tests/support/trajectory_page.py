"""The page that shows what instrumented agents give: `infra/docs/instrumentations.md`, its blocks by name."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "infra/docs/instrumentations.md"
NEW_CONVENTIONS = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
}
"""OpenTelemetry's own instrumentations then put what was said on the span."""
CREW = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
"""No reports of CrewAI's to its makers, which are none of the user's telemetry."""


def read_block(name: str) -> str:
    """Return the trajectory that the page shows under `name`."""
    return _block(name).group(2)


def write_block(name: str, text: str) -> None:
    """Show another trajectory under `name`."""
    start, end = _block(name).span(2)
    page = PAGE.read_text()
    PAGE.write_text(page[:start] + text + page[end:])


def _block(name: str) -> re.Match[str]:
    found = re.search(rf"^(```text {re.escape(name)}\n)(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE.name} has no block ```text {name}"
    return found
