"""What a teacher is asked, what is made of its answers, and what is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from contract.choices import Format
from rekindle.cli.distil import judge
from rekindle.cli.distil.prompts import TeacherPrompt, UnusablePrompt, parse_row, read_prompts
from rekindle.cli.distil.reply_cache import ReplyCache
from rekindle.cli.distil.rows import RowKind, build_rows, usable_answers
from rekindle.cli.distil.tally import DistilTally, TokenUsage
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.errors import CliError
from tests.unit.trainer.data.chat_rows import jsonl, verdict

USER = {"role": "user", "content": "2 + 2?"}
PROMPT = TeacherPrompt(1, [USER], {})
ASK = TeacherRequest(url="http://t/v1", model="big", messages=[USER], sampling={"temperature": 1.0})
FORMATS = {
    RowKind.SFT: Format.CHAT,
    RowKind.PREFERENCE: Format.PREFERENCE,
    RowKind.RANKING: Format.RANKING,
}


def reply(text: str, ended: str = "stop") -> TeacherReply:
    return TeacherReply(text=text, ended=ended, prompt_tokens=7, completion_tokens=3)


def answers_of(row: dict[str, Any]) -> list[str]:
    """Return the answers of a row, best first."""
    names = ("preferred_output", "non_preferred_output")
    answers = row.get("ranked_outputs") or [row[name] for name in names]
    return [message["content"] for (message,) in answers]


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [USER]}, [USER]),
        ({"prompt": "2 + 2?", "answer": "4"}, [USER]),
        ({"prompt": [USER]}, [USER]),
        (
            {"prompt": "2 + 2?", "system": "Be short."},
            [{"role": "system", "content": "Be short."}, USER],
        ),
    ],
)
def test_prompts_are_chats(row: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    parsed, item = parse_row(row)

    assert parsed == messages
    assert item == ({"answer": "4"} if "answer" in row else {})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "2 + 2?"}, "neither"),
        ({"messages": []}, "empty"),
        ({"prompt": "  "}, "empty"),
        ({"messages": [USER, {"role": "assistant", "content": "4"}]}, "the assistant's"),
        ({"messages": [{"role": "human", "content": "?"}]}, "no known role"),
        ({"messages": [{"role": "user", "content": ""}]}, "no `content`"),
        ({"messages": [{"role": "user"}]}, "no `content`"),
        ({"messages": ["2 + 2?"]}, "no known role"),
        ({"messages": [USER], "tools": [{}]}, "`tools`"),
        ({"prompt": "half \ud83d"}, "half of a surrogate pair"),
    ],
)
def test_a_row_that_nobody_could_answer_says_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusablePrompt, match=reason):
        parse_row(row)


def test_a_plain_text_is_a_prompt_a_line_and_each_is_asked_once(tmp_path: Path) -> None:
    file, tally = tmp_path / "prompts.txt", DistilTally()
    file.write_text('\n2 + 2?\n{"prompt": "this is text"}\n2 + 2?\n')

    prompts = [(p.line, p.messages[0]["content"]) for p in read_prompts(file, tally)]

    assert prompts == [(2, "2 + 2?"), (3, '{"prompt": "this is text"}')]
    assert tally.skipped.lines == {"it is a duplicate": [4]}


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": \n')

    with pytest.raises(CliError, match="line 2"):
        list(read_prompts(file, DistilTally()))


def test_candidates_that_are_of_no_use_are_dropped_and_counted() -> None:
    tally = DistilTally()
    replies: list[TeacherReply | str] = [
        reply("4"),
        reply(" \n"),
        reply("4 and so", "length"),
        reply("4"),
        reply("no", "content_filter"),
        reply("half \ud83d"),
        "too long a prompt",
        reply("four", ""),
    ]

    assert usable_answers(replies, tally) == ["4", "four"]
    assert tally.dropped == {
        "empty": 1,
        "cut off at --max-tokens": 1,
        "duplicate of an earlier one": 1,
        "ended by content_filter": 1,
        "it holds half of a surrogate pair": 1,
        "the teacher refused: too long a prompt": 1,
    }


@pytest.mark.parametrize("kind", list(RowKind))
def test_the_service_takes_every_row_that_is_made(kind: RowKind) -> None:
    for row in build_rows(kind, PROMPT, [("5", 0.0), ("4", 1.0)], exact=True):
        assert verdict(jsonl(row)).format is FORMATS[kind]


def test_the_best_answer_is_preferred_to_the_worst_and_a_ranking_has_one_for_each_grade() -> None:
    graded = [("b", 5.0), ("c", 2.0), ("a", 9.0), ("d", 2.0)]
    kinds = (RowKind.PREFERENCE, RowKind.RANKING)
    rows = [row for kind in kinds for row in build_rows(kind, PROMPT, graded, exact=False)]

    assert [answers_of(row) for row in rows] == [["a", "c"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("grades", "exact", "reason"),
    [
        ([1.0, 1.0], True, "all candidates are correct"),
        ([0.0, 0.0], True, "all candidates are wrong"),
        ([7.0, 7.0], False, "graded equally"),
        ([7.0], False, "only one"),
        ([], False, "no candidate is usable"),
    ],
)
def test_candidates_that_teach_nothing_give_no_pair(
    grades: list[float], exact: bool, reason: str
) -> None:
    candidates = [(str(n), grade) for n, grade in enumerate(grades)]

    with pytest.raises(UnusablePrompt, match=reason):
        build_rows(RowKind.PREFERENCE, PROMPT, candidates, exact=exact)


def test_chats_are_all_candidates_or_the_right_ones_where_that_is_known() -> None:
    every = build_rows(RowKind.SFT, PROMPT, [("a", None), ("b", None)], exact=False)
    right = build_rows(RowKind.SFT, PROMPT, [("4", 1.0), ("5", 0.0), ("It is 4", 1.0)], exact=True)

    assert [row["messages"][-1]["content"] for row in every] == ["a", "b"]
    assert [row["messages"][-1]["content"] for row in right] == ["4", "It is 4"]
    with pytest.raises(UnusablePrompt, match="is correct"):
        build_rows(RowKind.SFT, PROMPT, [("5", 0.0)], exact=True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7.0),
        (" 10\n", 10.0),
        ("0", None),
        ("11", None),
        ("7.5", None),
        ("7/10", None),
        ("I would say 7", None),
        ("", None),
    ],
)
def test_a_judge_says_a_whole_number_or_nothing(text: str, number: float | None) -> None:
    assert judge.parse_grade(text) == number


def test_a_judge_reads_the_conversation_and_the_answer() -> None:
    (message,) = judge.judge_messages([USER, USER | {"content": [{"text": "Well?"}]}], "four")

    assert "user: 2 + 2?\n\nuser: Well?" in message["content"]
    assert "<answer>\nfour\n</answer>" in message["content"]


def test_the_key_of_a_reply_changes_with_whatever_the_reply_depends_on() -> None:
    variants = [
        TeacherRequest(**vars(ASK) | changed)
        for changed in (
            {"url": "http://u/v1"},
            {"model": "small"},
            {"messages": [USER, USER]},
            {"sampling": {"temperature": 0.9}},
            {"number": 1},
        )
    ]

    assert len({ask.key for ask in (ASK, *variants)}) == 6
    assert TeacherRequest(**json.loads(json.dumps(vars(ASK)))).key == ASK.key


def test_a_reply_is_kept_for_whoever_opens_the_file_next(tmp_path: Path) -> None:
    first = ReplyCache(tmp_path / "replies")
    first.put(ASK.key, reply("4"))
    first.put(ASK.key, reply("a second one"))
    second = ReplyCache(tmp_path / "replies")

    assert second.get(ASK.key) == reply("4")
    assert second.get("another") is None
    first.close()
    second.close()


def test_a_file_that_holds_no_replies_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "replies"
    file.write_text("a letter to my mother, which is longer than a header" * 20)

    with pytest.raises(CliError, match="not a database") as refused:
        ReplyCache(file)

    assert "--cache" in refused.value.advice
    assert file.read_text().startswith("a letter")


def test_costs_are_the_tokens_at_their_prices() -> None:
    spent = TokenUsage()
    spent.add(1_000_000, 200_000)
    spent.add(500_000, 0)

    assert spent.cost({"input": 2.0, "output": 10.0}) == pytest.approx(5.0)
    assert spent.cost({"input": 2.0, "output": None}) is None
