"""Imported rows mean what they meant: no bad answer is learnt, and nothing is lost uncounted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rekindle.cli.imports.conversion import RowFormat, convert_row
from rekindle.cli.imports.members import RowSkipped
from rekindle.cli.main import app
from service.domain.datasets.dataset_line import check_line
from service.domain.datasets.row import DatasetRow

USER = {"from": "human", "value": "2 + 2?"}
GOOD, BAD = {"from": "gpt", "value": "4"}, {"from": "gpt", "value": "5"}
ASKED, SAID = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
WORSE = SAID | {"content": "5"}
ALPACA = {"instruction": "2 + 2?", "output": "4"}
PAIRED = {"prompt": "2 + 2?", "completion": "4"}
PAIR = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
TALK = {"conversations": [USER, GOOD]}
CALL = {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'}
SINGLE: list[tuple[Any, RowFormat]] = [
    (ALPACA, RowFormat.ALPACA),
    (TALK, RowFormat.SHAREGPT),
    (PAIRED, RowFormat.PROMPT_COMPLETION),
]


def talk(*turns: object, **members: object) -> dict[str, Any]:
    return {"conversations": list(turns)} | members


def left_out(row: dict[str, Any], kind: RowFormat) -> str:
    with pytest.raises(RowSkipped) as skipped:
        convert_row(row, kind)
    return str(skipped.value)


def accepted_row(row: dict[str, Any], kind: RowFormat) -> dict[str, Any]:
    """Convert the row, check that the service accepts it and return it."""
    converted = convert_row(row, kind).row
    assert isinstance(check_line(json.dumps(converted).encode(), None), DatasetRow)
    return converted


@pytest.mark.parametrize(("row", "kind"), SINGLE)
@pytest.mark.parametrize("name", ["label", "kto_tag", "desirable"])
@pytest.mark.parametrize("value", [False, 0, 0.0, -1, "false", "False", "0", "rejected"])
def test_an_answer_to_be_avoided_is_never_learnt(
    row: dict[str, Any], kind: RowFormat, name: str, value: object
) -> None:
    assert "one to be avoided" in left_out(row | {name: value}, kind)
    assert convert_row(row | {name: True}, kind).dropped == frozenset()
    assert convert_row(row | {name: "sums"}, kind).dropped == {name}


@pytest.mark.parametrize(("row", "kind"), SINGLE)
@pytest.mark.parametrize("name", ["weight", "train"])
def test_a_row_not_to_be_learnt_is_left_out(
    row: dict[str, Any], kind: RowFormat, name: str
) -> None:
    for value in (0, 0.0, "0", False):
        assert "not to be learnt" in left_out(row | {name: value}, kind)
    assert "neither 0 nor 1" in left_out(row | {name: 0.5}, kind)
    assert convert_row(row | {name: 1}, kind).dropped == frozenset()


@pytest.mark.parametrize(
    "members",
    [
        {"score_chosen": 1, "score_rejected": 3},
        {"chosen_score": "1", "rejected_score": "3"},
        {"chosen-rating": 2.0, "rejected-rating": 2.0},
        {"chosen_avg_rating": 1, "rejected_avg_rating": 3},
        {"reward_chosen": -2, "reward_rejected": -1},
        {"chosen_rank": 2, "rejected_rank": 1},
        {"rating": [1, 5]},
        {"winner": "rejected"},
        {"preferred": "5"},
        {"status": "tie"},
        {"label": 0},
        {"label": "rejected"},
        {
            "prompt": None,
            "chosen": [ASKED, SAID | {"score": 1}],
            "rejected": [ASKED, WORSE | {"score": 5}],
        },
    ],
    ids=str,
)
def test_a_pair_whose_order_its_own_members_deny_is_left_out(members: dict[str, Any]) -> None:
    skipped = left_out(PAIR | members, RowFormat.PREFERENCE)

    assert "is the order inverted?" in skipped or "which answer is the better one?" in skipped


@pytest.mark.parametrize(
    "members",
    [
        {"score_chosen": 3, "score_rejected": 1},
        {"chosen_rank": 1, "rejected_rank": 2},
        {"chosen_tokens": 3, "rejected_tokens": 9},
        {"rating": [5, 1]},
        {"winner": "model_a"},
    ],
    ids=str,
)
def test_scores_that_agree_are_counted_and_not_carried_over(members: dict[str, Any]) -> None:
    assert convert_row(PAIR | members, RowFormat.PREFERENCE).dropped == set(members)


@pytest.mark.parametrize("name", ["score", "rating", "reward"])
def test_ranks_that_scores_contradict_are_left_out(name: str) -> None:
    candidates = [{"content": "4", "rank": 1, name: 1}, {"content": "5", "rank": 2, name: 9}]
    row = {"prompt": "2 + 2?", "candidates": candidates}

    assert "differ in which is better" in left_out(row, RowFormat.RANKED)


@pytest.mark.parametrize("rank", [float("nan"), float("inf"), None, "1", True])
def test_a_rank_that_is_no_number_is_left_out(rank: object) -> None:
    candidates = [{"content": "4", "rank": rank}, {"content": "5", "rank": 2}]
    row = {"prompt": "2 + 2?", "candidates": candidates}

    assert "no number `rank`" in left_out(row, RowFormat.RANKED)


def test_a_prompt_is_never_replaced_by_another_one() -> None:
    system = {"role": "system", "content": "Add."}
    row = {"prompt": [system, ASKED], "chosen": [ASKED, SAID], "rejected": [ASKED, WORSE]}
    call = {"role": "assistant", "content": "Hm."}
    alike = {"prompt": "2 + 2?", "chosen": [call, SAID], "rejected": [call, WORSE]}

    assert "not what both answers begin with" in left_out(row, RowFormat.PREFERENCE)
    assert accepted_row(alike, RowFormat.PREFERENCE)["input"]["messages"] == [ASKED, call]


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [USER], "chosen": GOOD, "rejected": BAD},
        {"instruction": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    ],
)
def test_pairs_in_the_forms_of_other_programs_are_carried_over(row: dict[str, Any]) -> None:
    outputs = {"preferred_output": [SAID], "non_preferred_output": [WORSE]}

    assert accepted_row(row, RowFormat.PREFERENCE) == {"input": {"messages": [ASKED]}} | outputs


def test_answers_that_differ_in_what_the_user_says_are_left_out() -> None:
    row = {"prompt": "?", "chosen": [SAID, ASKED, SAID], "rejected": [WORSE, ASKED, WORSE]}

    assert "differ in more than what the assistant says" in left_out(row, RowFormat.PREFERENCE)


OFF = ["weight", "loss", "train", "training", "trainable", "learn", "loss_weight", "train_on_turn"]


@pytest.mark.parametrize("name", OFF)
def test_every_flag_that_switches_a_turn_off_becomes_its_weight(name: str) -> None:
    converted = accepted_row(talk(USER, BAD | {name: 0}, USER, GOOD), RowFormat.SHAREGPT)

    assert [m.get("weight") for m in converted["messages"]] == [None, 0, None, None]


@pytest.mark.parametrize("name", ["mask_loss", "loss_mask", "ignore", "ignore_loss"])
def test_a_flag_that_programs_read_differently_is_left_out(name: str) -> None:
    assert f"a turn has `{name}`" in left_out(talk(USER, GOOD | {name: 1}), RowFormat.SHAREGPT)


def test_a_user_turn_that_was_to_be_learnt_is_counted() -> None:
    converted = convert_row(talk(USER | {"train": True}, GOOD), RowFormat.SHAREGPT)

    assert converted.dropped == {"weight of messages of role user"}


def test_of_a_prompt_with_answers_the_completion_alone_is_learnt() -> None:
    row = {"prompt": [ASKED, WORSE, ASKED], "completion": [SAID]}
    converted = accepted_row(row, RowFormat.PROMPT_COMPLETION)

    assert [m.get("weight") for m in converted["messages"]] == [None, 0, None, None]


@pytest.mark.parametrize(("row", "kind"), SINGLE)
@pytest.mark.parametrize("name", ["system", "system_prompt", "system_message"])
def test_a_system_message_has_many_names(row: dict[str, Any], kind: RowFormat, name: str) -> None:
    converted = accepted_row(row | {name: "Add."}, kind)

    assert converted["messages"][0] == {"role": "system", "content": "Add."}
    assert "`system` is no text" in left_out(row | {"system": ["Add."]}, kind)
    assert "differ" in left_out(row | {"system": "Add.", "system_prompt": "Sum."}, kind)


def test_two_calls_get_their_results_in_order() -> None:
    calls = {"from": "function_call", "value": '[{"name": "f"}, {"name": "g", "arguments": "{}"}]'}
    results = [{"from": "observation", "value": value} for value in ("1", "2")]
    _, call, first, second, _ = accepted_row(talk(USER, calls, *results, GOOD), RowFormat.SHAREGPT)[
        "messages"
    ]

    ids = [tool_call["id"] for tool_call in call["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert len(set(ids)) == 2


def test_calls_in_every_form_become_tool_calls() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    forms: list[dict[str, Any]] = [
        {"tool_calls": [{"function": function}]},
        {"function_call": function},
    ]
    expected = {"name": "f", "arguments": '{"a": 1}'}
    tools = [{"name": "f", "parameters": {}}]
    for form in forms:
        messages = [ASKED, {"role": "assistant", "content": None} | form]
        row = {"prompt": messages[:1], "completion": messages[1:], "functions": tools}
        converted = accepted_row(row, RowFormat.PROMPT_COMPLETION)
        assert converted["messages"][1]["tool_calls"][0]["function"] == expected
        assert converted["tools"] == [{"type": "function", "function": tools[0]}]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_carried_over(name: str) -> None:
    converted = accepted_row(talk(USER, GOOD | {name: "Two and two."}), RowFormat.SHAREGPT)

    assert converted["messages"][1] == SAID | {"reasoning_content": "Two and two."}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (talk(USER, GOOD | {"value": "a\0"}), "NUL"),
        (talk(USER, GOOD | {"value": "\ud83d"}), "half of a surrogate pair"),
        (talk(USER, GOOD, tools=[{"name": "f", "x": float("nan")}]), "NaN or infinite"),
        (talk(USER, GOOD, tools=[{"name": "f", "x": 10**30}]), "64 bits"),
        (talk(USER, GOOD, tools=[{"x": "f"}]), "a tool has no `name`"),
        (talk(USER, GOOD, tools="[{"), "`tools` is no JSON"),
        (talk(USER, CALL | {"value": "f(1)"}, GOOD), "a call of a tool is no JSON"),
        (talk(USER, CALL | {"value": '{"name": "f", "arguments": "x"}'}, GOOD), "is no JSON"),
        (talk(USER, CALL | {"value": '{"name": "f", "arguments": [1]}'}, GOOD), "is no object"),
        (
            talk(
                USER,
                CALL | {"value": '{"name": "f", "arguments": "{\\"a\\": \\"\\\\ud83d\\"}"}'},
                GOOD,
            ),
            "half",
        ),
        (talk(USER, {"from": "human", "value": "a", "content": "b"}, GOOD), "differ"),
    ],
)
def test_what_the_service_would_refuse_is_left_out_alone(row: dict[str, Any], reason: str) -> None:
    assert reason in left_out(row, RowFormat.SHAREGPT)


def test_members_of_calls_and_flags_that_are_false_are_counted() -> None:
    call = CALL | {"value": '{"name": "f", "arguments": {}, "cost": 0}'}
    converted = convert_row(talk(USER, call, GOOD, is_safe=False, score=0), RowFormat.SHAREGPT)

    assert converted.dropped == {"calls[].cost", "is_safe", "score"}


@pytest.mark.parametrize(
    "text", ['{"prompt": "a", "completion": "b", "completion": "c"}', "[" * 100_000]
)
@pytest.mark.parametrize("document", ["{}\n", "[{}]"])
def test_rows_that_nobody_reads_alike_are_named(tmp_path: Path, text: str, document: str) -> None:
    file, out = tmp_path / "theirs.json", tmp_path / "ours.jsonl"
    file.write_text(document.replace("{}", text))

    result = CliRunner().invoke(app, ["import", str(file), str(out)])

    assert result.exit_code == 1
    assert "line 1: it is not JSON" in result.output


VALUES = st.sampled_from(
    [None, "", " ", "4", "false", "\ud83d", 0, 1, 0.5, -1, True, False, [], {}, ["x"], {"a": 1}]
)
FUNCTION = {"name": "f", "arguments": "{}"}
TALKS: list[Any] = [USER, GOOD, CALL, {"from": "observation", "value": "4"}, ASKED, SAID, WORSE]
ODD_TURN = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("from", "value", "content", "weight", "name", "thinking"), VALUES)
    | {"tool_calls": VALUES | st.just([{"function": FUNCTION}]), "function_call": VALUES},
)
TURN = st.builds(lambda turn, odd: turn | odd, st.sampled_from(TALKS), st.just({}) | ODD_TURN)
CHATS = st.lists(TURN, max_size=4) | st.lists(st.sampled_from(TALKS), min_size=1, max_size=5)
RANKED = {"prompt": "?", "candidates": [{"content": "4", "rank": 1}, {"content": "5", "rank": 2}]}
BASES: list[tuple[dict[str, Any], RowFormat]] = [
    *SINGLE,
    (PAIR, RowFormat.PREFERENCE),
    (RANKED, RowFormat.RANKED),
]
ODD_ROW = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("prompt", "completion", "chosen", "rejected", "conversations"), CHATS)
    | dict.fromkeys(("system", "input", "history", "tools", "label", "score_chosen"), VALUES)
    | {"instruction": VALUES, "history": st.just([["a", "b"]]), "output": VALUES},
)


@settings(max_examples=500)
@given(st.sampled_from(BASES), ODD_ROW)
def test_whatever_is_imported_the_service_takes(
    base: tuple[dict[str, Any], RowFormat], odd: dict[str, Any]
) -> None:
    row, kind = base
    try:
        converted = convert_row(row | odd, kind).row
    except RowSkipped:
        return

    verdict = check_line(json.dumps(converted).encode(), None)
    assert isinstance(verdict, DatasetRow), verdict
