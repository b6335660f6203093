"""YAML, JSON and TOML as people write them, and what is refused of it."""

from pathlib import Path

import pytest

from rekindle.cli.submit.document_file import (
    MAX_BYTES,
    UnreadableDocument,
    parse_document,
    read_document,
)

SCALARS = {
    "1e-5": 1e-5,
    "1E5": 1e5,
    "-1.5e+3": -1500.0,
    ".5": 0.5,
    "1.": 1.0,
    "010": 10,
    "0x1F": 31,
    "1_000": 1000,
    "on": True,
    "no": False,
    "True": True,
    "~": None,
    "": None,
    "2026-11-25": "2026-11-25",
    "12:30": "12:30",
    "1.2.3": "1.2.3",
    "e5": "e5",
    "'no'": "no",
    "'5'": "5",
    "!!str 5": "5",
    "=": "=",
    "[hpz, qwz]": ["hpz", "qwz"],
    "{a: 1e-3}": {"a": 1e-3},
}
REFUSED = {
    "a: 1\nb: 2\na: 3": "line 3: 'a' is given twice",
    "a: {b: 1, b: 2}": "line 1: 'b' is given twice",
    "a: &x [1]\nb: *x": "alias",
    "a: &x [*x]": "alias",
    "a: !!python/object:os.system x": "tag",
    "a: !!set {x}": "tag",
    "a: !!int x": "not a number",
    "a: .nan": "a is nan",
    "a: [1, -.inf]": "a.1 is -inf",
    "a: 1e999": "a is inf",
    "a: " + "9" * 5000: "not a number",
    'a: "\\ud800"': "half a character",
    "? [a]\n: 1": "a name must be text",
    "a: [": "not YAML: line 1",
    "a: 1\n\tb: 2": "not YAML: line 2",
    "a\x00": "not YAML",
    "a: 1\n---\nb: 1": "single document",
    "[" * 100_000: "nested deeper",
    "{a: " * 100 + "1" + "}" * 100: "nested deeper",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_a_scalar_is_what_a_person_means(text: str, value: object) -> None:
    found = parse_document(f"a: {text}").value

    assert found == {"a": value}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize(("text", "says"), REFUSED.items(), ids=lambda text: text[:20])
def test_hostile_yaml_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(UnreadableDocument, match=says):
        parse_document(text)


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]

    with pytest.raises(UnreadableDocument, match="alias"):
        parse_document("\n".join(lines))


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        (".json", '{"a": 1, "a": 2}', "given twice"),
        (".json", '{"a": NaN}', "a is nan"),
        (".json", "{", "not JSON"),
        (".json", "[" * 100_000, "nested deeper"),
        (".toml", "a = 1\na = 2", "not TOML"),
        (".toml", "a = 2026-11-25", "a is a date"),
        (".toml", "a = nan", "a is nan"),
        (".toml", "a = " + "[" * 100_000, "nested deeper"),
    ],
)
def test_json_and_toml_are_as_strict(suffix: str, text: str, says: str) -> None:
    with pytest.raises(UnreadableDocument, match=says):
        parse_document(text, suffix)


def test_lines_of_yaml_are_known_by_their_members() -> None:
    document = parse_document("model: m\ntraining:\n  # why\n  ema_decay: 0.9\n")

    assert document.lines == {"model": 1, "training": 2, "training.ema_decay": 4}


def test_json_is_yaml_and_may_carry_comments_or_tabs_or_a_mark_of_its_order() -> None:
    assert parse_document('{"a": 1}\n# machines  2').value == {"a": 1}
    assert parse_document('{"a": 1}\n# machines  2', ".json").value == {"a": 1}
    assert parse_document('{\n\t"a": 1}', ".json").value == {"a": 1}


def test_a_file_that_cannot_be_text_is_refused(tmp_path: Path) -> None:
    large, binary, marked = (tmp_path / name for name in ("l.yaml", "b.yaml", "m.YAML"))
    large.write_bytes(b"# " + b"x" * MAX_BYTES)
    binary.write_bytes(b"\xff\xfem\x00")
    marked.write_bytes(b"\xef\xbb\xbfa: 1")

    for path, says in ((large, "larger than"), (binary, "UTF-8"), (tmp_path / "none", "No such")):
        with pytest.raises(UnreadableDocument, match=says):
            read_document(path)
    assert read_document(marked).value == {"a": 1}
