"""What the docs point at exists, and what a reader looks for is where the README says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "infra/docs").rglob("*.md"))]
LANDMARKS = {
    "libs/leyden_contracts/transition.py": "class Transition",
    "libs/leyden_contracts/episode.py": "EPISODE_TRANSITIONS",
    "libs/leyden_traces/calls.py": "def decode_call",
    "libs/leyden_traces/trajectory.py": "def build_trajectory",
    "libs/leyden_algorithms/advantages/grpo.py": "def grpo(",
    "services/leyden_learner/staleness.py": "def is_stale",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", LANDMARKS)
def test_landmarks_are_linked_from_the_readme(path: str) -> None:
    assert f"({path})" in (ROOT / "README.md").read_text()
    assert LANDMARKS[path] in (ROOT / path).read_text()


@pytest.mark.parametrize("service", sorted(path.name for path in (ROOT / "services").glob("leyden_*")))
def test_each_main_loop_is_linked_from_the_readme(service: str) -> None:
    assert re.search(rf"\(services/{service}/\w+\.py\)", (ROOT / "README.md").read_text())
