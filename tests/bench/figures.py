"""How a figure is printed: one JSON object a line."""

import json


def show(name: str, value: float, unit: str, target: float | None = None, baseline: float | None = None) -> None:
    """Print one figure."""
    rounded = None if baseline is None else round(baseline, 3)
    figure = {"name": name, "value": round(value, 3), "unit": unit, "target": target, "baseline": rounded}
    print(json.dumps(figure), flush=True)
