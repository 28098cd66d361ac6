"""The dashboard that is shipped is the one that the generator makes."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from prometheus_client import REGISTRY

ROOT = Path(__file__).parents[3]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_dashboard", ROOT / "infra/grafana/make_dashboard.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_dashboard_is_fresh() -> None:
    shipped = (ROOT / "infra/grafana/leyden.json").read_text()
    assert shipped == generator().make_dashboard(), "run `just dashboard`"


def test_it_asks_the_learner_for_nothing_that_it_does_not_measure() -> None:
    import leyden_learner.metrics  # noqa: F401

    known = {sample.name for metric in REGISTRY.collect() for sample in [*metric.samples, metric]}
    known |= {f"{name}_total" for name in known}

    asked = set(re.findall(r"leyden_learner_\w+", generator().make_dashboard()))
    assert len(asked) > 12
    assert asked <= known
