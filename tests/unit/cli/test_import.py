"""Other programs' files become ours: rows, what is left out, and what the service says of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rekindle.cli.files import json_rows
from rekindle.cli.imports.conversion import RowFormat, convert_row, detect_format
from rekindle.cli.imports.members import RowSkipped
from rekindle.cli.main import app
from tests.unit.trainer.data.chat_rows import verdict

R = RowFormat
USER, ANSWER, WORSE = (
    {"role": role, "content": content}
    for role, content in (("user", "2 + 2?"), ("assistant", "4"), ("assistant", "5"))
)
CHAT = {"messages": [USER, ANSWER]}
PAIR = {
    "input": {"messages": [USER]},
    "preferred_output": [ANSWER],
    "non_preferred_output": [WORSE],
}
RANKING = {"input": {"messages": [USER]}, "ranked_outputs": [[ANSWER], [WORSE]]}
ALPACA = {"instruction": "Add.", "input": "2 + 2?", "output": "4"}
SHAREGPT = {"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]}
CANDIDATES = [{"content": "5", "rank": 1}, {"content": "4", "rank": 0}]


def TURNS(weight: float, **members: object) -> list[dict[str, Any]]:  # noqa: N802 - beside constants
    return [
        {"from": "human", "value": "2 + 2?"},
        {"from": "gpt", "value": "4", "weight": weight, **members},
    ]


def imported(tmp_path: Path, text: str, *options: str) -> tuple[Result, list[dict[str, Any]]]:
    """How the command ended, and the rows that it wrote."""
    file, out = tmp_path / "theirs.json", tmp_path / "ours.jsonl"
    file.write_text(text)
    result = CliRunner().invoke(app, ["import", str(file), str(out), *options])
    lines = out.read_text().splitlines() if out.exists() else []
    return result, [json.loads(line) for line in lines]


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("row", "kind", "converted"),
    [
        (ALPACA | {"input": ""}, R.ALPACA, {"messages": [USER | {"content": "Add."}, ANSWER]}),
        (ALPACA, R.ALPACA, {"messages": [USER | {"content": "Add.\n2 + 2?"}, ANSWER]}),
        (
            ALPACA | {"instruction": "2 + 2?", "input": None, "system": "Be short."},
            R.ALPACA,
            {"messages": [{"role": "system", "content": "Be short."}, USER, ANSWER]},
        ),
        (SHAREGPT, R.SHAREGPT, CHAT),
        (
            {"conversations": [*SHAREGPT["conversations"], {"from": "user", "value": "Thanks."}]},
            R.SHAREGPT,
            CHAT,
        ),
        ({"prompt": "2 + 2?", "completion": "4"}, R.PROMPT_COMPLETION, CHAT),
        ({"prompt": [USER], "completion": [ANSWER]}, R.PROMPT_COMPLETION, CHAT),
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, R.PREFERENCE, PAIR),
        ({"prompt": [USER], "chosen": [ANSWER], "rejected": [WORSE]}, R.PREFERENCE, PAIR),
        ({"chosen": [USER, ANSWER], "rejected": [USER, WORSE]}, R.PREFERENCE, PAIR),
        (
            {"prompt": "2 + 2?", "chosen": [USER, ANSWER], "rejected": [USER, WORSE]},
            R.PREFERENCE,
            PAIR,
        ),
        ({"prompt": "2 + 2?", "candidates": CANDIDATES}, R.RANKED, RANKING),
        ({"prompt": [USER], "candidates": CANDIDATES[::-1]}, R.RANKED, RANKING),
    ],
)
def test_a_row_of_theirs_is_known_and_becomes_ours(
    row: Any,  # noqa: ANN401
    kind: RowFormat,
    converted: object,
) -> None:
    assert detect_format(row) is kind
    assert convert_row(row, kind).row == converted


@pytest.mark.parametrize(
    ("row", "kind", "reason"),
    [
        (ALPACA | {"output": " "}, R.ALPACA, "`output` is empty"),
        (ALPACA | {"output": 4}, R.ALPACA, "`output` is no text"),
        ({"conversations": "hi"}, R.SHAREGPT, "is no list"),
        ({"conversations": ["hi"]}, R.SHAREGPT, "is no object"),
        ({"conversations": [{"from": "narrator", "value": "4"}]}, R.SHAREGPT, "from 'narr"),
        ({"conversations": [{"from": "tool", "value": "4"}]}, R.SHAREGPT, "no call before"),
        ({"conversations": [*TURNS(0)]}, R.SHAREGPT, "every answer has weight 0"),
        ({"conversations": [*TURNS(0.5)]}, R.SHAREGPT, "neither 0 nor 1"),
        ({"conversations": [*TURNS(1, train=False)]}, R.SHAREGPT, "differ in whether"),
        ({"conversations": [*TURNS(1, mask=True)]}, R.SHAREGPT, "`mask`"),
        (SHAREGPT | {"images": ["a.png"]}, R.SHAREGPT, "only text is trained"),
        (
            {"system": "a", "conversations": [{"from": "system", "value": "b"}, *TURNS(1)]},
            R.SHAREGPT,
            "differ in the system message",
        ),
        (ALPACA | {"history": ["hi"]}, R.ALPACA, "no list of pairs"),
        ({"conversations": SHAREGPT["conversations"][:1]}, R.SHAREGPT, "the assistant's"),
        ({"prompt": [], "completion": "4"}, R.PROMPT_COMPLETION, "no list of messages"),
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": "4"}, R.PREFERENCE, "the same"),
        ({"prompt": "?", "candidates": CANDIDATES[:1]}, R.RANKED, "2 to 16"),
        ({"prompt": "?", "candidates": CANDIDATES[:1] * 2}, R.RANKED, "the same rank"),
    ],
)
def test_a_row_that_cannot_be_ours_says_why(row: Any, kind: RowFormat, reason: str) -> None:  # noqa: ANN401
    with pytest.raises(RowSkipped, match=reason):
        convert_row(row, kind)


def test_calls_of_tools_and_their_results_are_carried_over() -> None:
    turns = [
        {"from": "human", "value": "2 + 2?"},
        {"from": "function_call", "value": json.dumps({"name": "add", "arguments": {"a": 2}})},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "It is 4."},
    ]
    tools = json.dumps([{"name": "add", "parameters": {}}])
    row = convert_row({"conversations": turns, "tools": tools}, R.SHAREGPT).row

    _, call, result, _ = row["messages"]
    assert call["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert row["tools"] == [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    assert verdict(jsonl(row).encode()).examples == 1


def test_earlier_rounds_are_read_and_not_learnt() -> None:
    row = convert_row(ALPACA | {"history": [["a?", "b"]]}, R.ALPACA).row

    assert [m.get("weight") for m in row["messages"]] == [None, 0, None, None]


def test_members_that_are_not_carried_over_are_counted_by_name(tmp_path: Path) -> None:
    row = SHAREGPT | {"id": 7, "source": "web", "tags": []}
    turn = {"from": "human", "value": "Thanks.", "emotion": "glad"}
    result, rows = imported(
        tmp_path, jsonl(row, SHAREGPT | {"conversations": [*SHAREGPT["conversations"], turn]})
    )

    assert len(rows) == 2
    for name in ("id", "source", "conversations[].emotion", "conversations[] after the last"):
        assert f"not carried over: `{name}" in result.output
    assert "tags" not in result.output


def test_what_was_written_and_left_out_is_told_with_its_lines(tmp_path: Path) -> None:
    empty = ALPACA | {"output": ""}
    result, rows = imported(tmp_path, jsonl(ALPACA, empty, ALPACA, *[empty] * 6))

    assert (result.exit_code, len(rows)) == (0, 2)
    assert "wrote 2 rows of format alpaca to" in result.output
    assert "7 rows left out: `output` is empty (lines 2, 4, 5, 6, 7 and more)" in result.output
    assert "Next: rekindle submit" in result.output
    assert list(tmp_path.glob(".*")) == []


def test_programs_get_it_as_json(tmp_path: Path) -> None:
    result, _ = imported(tmp_path, jsonl(SHAREGPT, {"conversations": []}), "--json")

    summary = json.loads(result.output)
    assert (summary["format"], summary["rows"], summary["rows_left_out"]) == ("sharegpt", 1, 1)
    assert summary["left_out"] == {"no message is the assistant's": {"rows": 1, "lines": [2]}}


def test_one_array_over_many_lines_is_read_as_its_rows(tmp_path: Path) -> None:
    rows = [ALPACA | {"input": f"[{n}] {{"} for n in range(3)]
    text = "\ufeff\n" + json.dumps([*rows[:2], ALPACA | {"output": ""}, rows[2]], indent=2)

    result, written = imported(tmp_path, text)

    contents = [row["messages"][0]["content"] for row in written]
    assert contents == [f"Add.\n[{n}] {{" for n in range(3)]
    assert "(lines 13)" in result.output


def test_an_array_longer_than_what_is_read_at_once_is_read_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text(json.dumps([{"n": n, "text": "x" * 700_000} for n in range(5)]))

    assert [row["n"] for _, row in json_rows.read_rows(path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (jsonl(ALPACA) + "{", 1, "line 2: it is not JSON"),
        (jsonl(ALPACA) + "[]\n", 1, "line 2: it is not a JSON object"),
        ("[\n" + json.dumps(ALPACA) + ",\n{", 1, "line 3: it is not JSON"),
        ("[" + json.dumps(ALPACA), 1, "line 1: it is not JSON"),
        (jsonl(CHAT), 2, "submit it without conversion"),
        (jsonl({"question": "?"}), 2, "Pass --format"),
        (jsonl(ALPACA | {"output": ""}), 1, "could be converted"),
        ("", 1, "it has no rows"),
    ],
)
def test_a_wrong_file_leaves_nothing(tmp_path: Path, text: str, code: int, expected: str) -> None:
    result, rows = imported(tmp_path, text)

    assert (result.exit_code, rows) == (code, [])
    assert expected in result.output
    assert [f.name for f in tmp_path.iterdir()] == ["theirs.json"]


def test_a_format_that_is_told_is_not_guessed(tmp_path: Path) -> None:
    row = {"prompt": "2 + 2?", "completion": "4", "chosen": "4", "rejected": "5"}

    _, guessed = imported(tmp_path, jsonl(row), "--format", "prompt-completion")

    assert guessed == [CHAT]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "ours.jsonl").write_text("precious")
    (tmp_path / "theirs.jsonl").write_text(jsonl(ALPACA))
    names = [str(tmp_path / name) for name in ("theirs.jsonl", "ours.jsonl")]

    result = CliRunner().invoke(app, ["import", *names])

    assert result.exit_code == 2
    assert (tmp_path / "ours.jsonl").read_text() == "precious"
