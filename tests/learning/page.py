"""Puts the table and the picture into the docs, between the markers."""

from collections.abc import Sequence
from pathlib import Path

from learning.findings import Finding

BEGIN, END = "<!-- results: written by `just learning` -->", "<!-- end of results -->"
_HEAD = (
    "| strategy | expected | before | after | gain | score while learning | gain against the reference "
    "| score while learning against the reference | found |\n|---|---|---|---|---|---|---|---|---|"
)


def write(page: Path, picture: Path, found: Sequence[Finding], cpu_s: float) -> None:
    """Replace what stands between the markers of `page`. Raises ValueError where it has none."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page} must hold the lines {BEGIN!r} and {END!r} once each")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{render(found, picture.name, cpu_s)}\n\n{END}{after}")


def render(found: Sequence[Finding], picture: str, cpu_s: float) -> str:
    """Return the picture and a table for each study."""
    parts = [f"![learning curves and gains]({picture})"]
    for study in dict.fromkeys(one.study.name for one in found):
        own = [one for one in found if one.study.name == study]
        seeds = sorted({one.gain.n for one in own})
        parts.append(f"**{study}**, {' to '.join(map(str, seeds))} seeds\n\n{_HEAD}\n" + "\n".join(map(_row, own)))
    return "\n\n".join([*parts, f"All cells together took {cpu_s / 60:.0f} CPU minutes."])


def _row(one: Finding) -> str:
    area = one.area
    cells = [
        one.strategy.name,
        one.strategy.expected,
        f"{one.before:.3f}",
        f"{one.after:.3f}",
        str(one.gain),
        f"{area.mean:.3f} [{area.low:.3f}, {area.high:.3f}]",
        str(one.gain_difference or ""),
        str(one.area_difference or ""),
        one.verdict,
    ]
    return f"| {' | '.join(cells)} |"
