"""From uploaded lines to what is learned from."""

from collections.abc import Iterable, Sequence

from leyden_contracts.start_line import DpoLine, SftLine, Text
from leyden_learner.samples import Sample
from leyden_learner.start.chat import Chat, Tools
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.units import Example, Pair, Unit, Units, make_sample


def units_of_lines(lines: Iterable[bytes], kind: str, chat: Chat, roles: Sequence[str]) -> Units:
    """Return the examples or pairs of stored lines; a line without a role is learned by all of them.

    Raises StartRefused, which names the line.
    """
    found = Units()
    for number, raw in enumerate(lines, start=1):
        where = f"line {number} of the stored data"
        try:
            line = (SftLine if kind == "sft" else DpoLine).model_validate_json(raw)
            for role in [line.role] if line.role else roles:
                found.units.append(_unit(line, role, where, chat))
        except StartRefused as error:
            raise StartRefused(f"{where}: {error}") from error
    return found


def _unit(line: SftLine | DpoLine, role: str, where: str, chat: Chat) -> Unit:
    if isinstance(line, SftLine):
        return Example(role, where, samples_of(line.prompt, line.completion, line.tools, role, chat))
    chosen, rejected = (samples_of(line.prompt, one, line.tools, role, chat) for one in (line.chosen, line.rejected))
    return Pair(role, where, chosen, rejected)


def samples_of(prompt: Text, answer: Text, tools: Tools, role: str, chat: Chat) -> tuple[Sample, ...]:
    """Return a sample for each turn of the assistant in `answer`. Raises StartRefused."""
    if isinstance(prompt, str) or isinstance(answer, str):
        turns = [chat.text(str(prompt), str(answer))]
    else:
        turns = chat.turns([*prompt, *answer], tools, first=len(prompt))
    return tuple(make_sample(role, turn.prompt, turn.response) for turn in turns)
