"""Files that people write: what is wrong is said with its place, before anything is sent."""

from pathlib import Path

import pytest

from leyden_client.errors import InputError
from leyden_client.files import check_start, read_spec, read_tasks
from leyden_contracts import RunSpec

SPEC = "base_model: tiny\nagent: a:b\ngrader: a:c\nalgorithm: {learning_rate: 1e-3}\n"


def test_a_specification_in_yaml_or_json(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(SPEC)
    (tmp_path / "run.json").write_text(
        '{\n\t"base_model": "tiny", "agent": "a:b", "grader": "a:c", "algorithm": {"learning_rate": 1e-3}}'
    )
    assert read_spec(tmp_path / "run.yaml") == read_spec(tmp_path / "run.json")
    assert read_spec(tmp_path / "run.yaml").algorithm.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (SPEC + "steps: 3\n", "steps: Extra inputs are not permitted"),
        (SPEC.replace("tiny", "'../x'"), "base_model: String should match pattern"),
        ("- 1\n", "Input should be a valid dictionary"),
    ],
)
def test_a_wrong_specification(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        read_spec(tmp_path / "run.yaml")
    assert any(line.startswith(fault) for line in error.value.lines), error.value.lines


@pytest.mark.parametrize(("name", "text"), [("a.yaml", b"a: [1"), ("a.json", b"{"), ("a.yaml", b"\xff\xfe\xff")])
def test_what_is_no_yaml_or_json(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(InputError, match="not YAML or JSON"):
        read_spec(tmp_path / name)


def test_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"input": 1}\r\n\n{"input": 2, "expected": 3}')
    assert [task.input for task in read_tasks(path)] == [1, 2]
    path.write_bytes(b'{"input": 1}\n\n{"inputs": 2}\n{"input": NaN}\n')
    with pytest.raises(InputError) as error:
        read_tasks(path)
    assert error.value.lines == [
        "line 3: input: Field required",
        "line 3: inputs: Extra inputs are not permitted",
        "line 4: NaN and infinite numbers are not JSON",
    ]
    path.write_bytes(b"\n")
    with pytest.raises(InputError, match="holds no task"):
        read_tasks(path)
    with pytest.raises(InputError, match="cannot read"):
        read_tasks(tmp_path / "absent")


def test_what_a_start_learns_from_is_checked_before_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "start.jsonl"
    spec = {"base_model": "tiny", "agent": "a:b", "grader": "a:c"}
    learns = RunSpec.model_validate(spec | {"start": {"kind": "sft"}})
    path.write_text('{"prompt": "a", "completion": "b"}\n')
    check_start(learns, path)
    with pytest.raises(InputError, match="has no start that learns from a file"):
        check_start(RunSpec.model_validate(spec), path)

    path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
    with pytest.raises(InputError) as error:
        check_start(learns, path)
    assert error.value.lines == ["line 2: completion: Field required"]
    path.write_text("\n")
    with pytest.raises(InputError, match="nothing to learn from"):
        check_start(learns, path)
