"""The dashboard that is shipped is the one that the generator makes."""

import importlib.util
from pathlib import Path
from types import ModuleType

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
