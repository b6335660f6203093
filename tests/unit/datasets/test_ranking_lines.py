"""Rows of rankings, labels and prompts, judged with a chat's care, and what graders read."""

from typing import Any

import pytest

from contract.choices import Format
from service.domain.datasets.labelled_line import MOST_LABELS
from service.domain.datasets.ranking_line import MOST_ANSWERS
from tests.unit.trainer.data.chat_rows import (
    ASSISTANT,
    CALL,
    CHAT,
    TOOL,
    USER,
    codes,
    jsonl,
    refusal,
    verdict,
)

WORSE, WORST = ({"role": "assistant", "content": content} for content in ("five", "eleven"))
RANKING: dict[str, Any] = {
    "input": {"messages": [USER]},
    "ranked_outputs": [[ASSISTANT], [WORSE], [WORST]],
}
PAIR = {
    "input": {"messages": [USER]},
    "preferred_output": [ASSISTANT],
    "non_preferred_output": [WORSE],
}
TEXT = {"text": "It broke at once.", "label": "bad"}
LABELLED_CHAT = {"messages": [USER, ASSISTANT], "label": "good"}


def rankings(count: int) -> list[dict[str, Any]]:
    """Good rows that all differ, of three answers."""
    questions = [USER | {"content": f"{i} + 2?"} for i in range(count)]
    return [RANKING | {"input": {"messages": [question]}} for question in questions]


def test_a_file_of_rankings_knows_the_most_answers_and_counts_every_sequence() -> None:
    short = RANKING | {"ranked_outputs": [[ASSISTANT], [WORST]]}
    summary = verdict(jsonl(*rankings(9), short))

    assert (summary.format, summary.examples, codes(summary)) == (Format.RANKING, 10, [])
    assert (summary.answers, summary.sequences) == (3, 29)
    prompts = (9 * 3 + 2) * len("2 + 2?")
    assert (
        summary.characters == prompts + 10 * len("411") + 9 * len("five") + 10 * len("eleven") - 20
    )
    assert summary.tokens == round(summary.characters / 3.5) + 29 * 16
    assert (verdict(jsonl(PAIR)).answers, verdict(jsonl(PAIR)).sequences) == (0, 2)


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        (RANKING | {"input": [USER]}, "missing_input", "`input`"),
        (RANKING | {"ranked_outputs": "4"}, "missing_output", f"2 to {MOST_ANSWERS} answers"),
        (RANKING | {"ranked_outputs": [[ASSISTANT]]}, "missing_output", "2 to"),
        (RANKING | {"ranked_outputs": [[ASSISTANT], []]}, "missing_output", "at least one message"),
        (RANKING | {"ranked_outputs": [[WORSE]] * 17}, "missing_output", "2 to 16"),
        (RANKING | {"ranked_outputs": [ASSISTANT, WORSE]}, "missing_output", "best first"),
        (RANKING | {"ranked_outputs": [[ASSISTANT], [USER]]}, "invalid_output_role", "answer 2"),
        (RANKING | {"ranked_outputs": [[ASSISTANT], ["x"]]}, "data_type", "answer 2, message 1"),
        (RANKING | {"tools": [TOOL]}, "outside_input", "`tools`"),
        (RANKING | {"preferred_output": [ASSISTANT]}, "mixed_formats", "leave one out"),
        ({"input": {"messages": [USER]}}, "missing_output", "`ranked_outputs`"),
        (PAIR, "mixed_formats", "it is a preference, but the rows before it are rankings"),
        (CHAT, "mixed_formats", "a file of their own"),
    ],
)
def test_a_broken_ranking_is_named_by_line_and_kind(row: object, code: str, expected: str) -> None:
    message = refusal(jsonl(RANKING, row, RANKING))

    assert "line 2: " in message
    assert f"({code})" in message
    assert expected in message


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (RANKING | {"ranked_outputs": [[WORSE], [ASSISTANT], [ASSISTANT]]}, "equal_outputs"),
        (RANKING | {"input": {"messages": [USER, USER]}}, "repeated_role"),
        (
            RANKING | {"ranked_outputs": [[WORSE | {"content": "a\x07"}], [WORST]]},
            "control_character",
        ),
        (rankings(3)[1], "duplicate_row"),
    ],
)
def test_an_odd_ranking_is_kept_and_pointed_out(row: object, code: str) -> None:
    summary = verdict(jsonl(*rankings(12), row))

    assert [(w.line, w.code) for w in summary.warnings] == [(13, code)]


def test_a_file_of_labelled_texts_knows_its_labels_in_order() -> None:
    texts = [TEXT | {"text": f"{n} stars", "label": "good"} for n in range(9)]
    summary = verdict(jsonl(TEXT, *texts, LABELLED_CHAT))

    assert (summary.format, summary.labels, summary.sequences) == (
        Format.LABELLED,
        ("bad", "good"),
        11,
    )
    assert codes(summary) == []
    assert verdict(jsonl(CHAT)).labels == ()


def test_chats_and_prompts_may_hold_a_label_beside_other_members() -> None:
    assert verdict(jsonl(CHAT | {"label": "good", "source": "forum"})).format is Format.CHAT
    prompt = {"messages": [USER], "label": "4", "difficulty": 2}
    assert verdict(jsonl(prompt)).format is Format.PROMPT
    assert verdict(jsonl(CHAT | {"label": True})).format is Format.CHAT


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        ({"text": "Fine."}, "missing_label", "`label`"),
        ({"messages": [USER]}, "missing_label", "`label`"),
        (TEXT | {"label": 3}, "missing_label", "a string"),
        (TEXT | {"label": " "}, "missing_label", "a string"),
        (TEXT | {"label": "x" * 101}, "label_too_long", "shorten it"),
        (TEXT | {"text": ""}, "missing_text", "not empty"),
        (TEXT | {"text": ["a"]}, "missing_text", "a string"),
        ({"label": "bad"}, "missing_text", "`text` is needed, or `messages`"),
        (TEXT | LABELLED_CHAT, "mixed_formats", "leave one out"),
        (LABELLED_CHAT | {"messages": [{"role": "user"}]}, "message_missing_key", "message 1"),
        (PAIR, "mixed_formats", "it is a preference, but the rows before it are labelled texts"),
    ],
)
def test_a_broken_labelled_text_is_named_by_line_and_kind(
    row: object, code: str, expected: str
) -> None:
    message = refusal(jsonl(TEXT, row, TEXT))

    assert "line 2: " in message
    assert f"({code})" in message
    assert expected in message


def test_labels_have_their_own_files_of_no_more_than_a_model_can_learn() -> None:
    assert "add its `label`" in refusal(jsonl({"text": "Once upon a time"}))

    many = [TEXT | {"label": f"class {n}"} for n in range(MOST_LABELS + 1)]

    assert verdict(jsonl(*many[:-1])).examples == MOST_LABELS
    assert f"line {MOST_LABELS + 1}: the file has more than {MOST_LABELS} labels" in refusal(
        jsonl(*many)
    )


PROMPT: dict[str, Any] = {"messages": [USER], "answer": "4", "level": 1}


def prompts(count: int, **members: object) -> list[dict[str, Any]]:
    """Good rows that all differ."""
    return [
        PROMPT | {"messages": [USER | {"content": f"{i} + 2?"}]} | members for i in range(count)
    ]


def test_rows_that_end_with_a_question_are_prompts() -> None:
    summary = verdict(jsonl(*prompts(10)))

    assert (summary.format, summary.examples, codes(summary)) == (Format.PROMPT, 10, [])
    assert summary.characters == 10 * len("0 + 2?")
    assert verdict(jsonl(CHAT)).format is Format.CHAT


@pytest.mark.parametrize("role", ["user", "tool", "system", "developer"])
def test_whoever_but_the_assistant_may_speak_last(role: str) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    message = {"role": role, "content": "4"} | ({"tool_call_id": "c1"} if role == "tool" else {})

    row = {"messages": [USER, call, message], "tools": [TOOL], "weight": [{"of": "anything"}]}

    assert verdict(jsonl(row)).format is Format.PROMPT


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        ({"answer": "4"}, "missing_messages_list", "at least one message"),
        (PROMPT | {"messages": []}, "mixed_formats", "it is a chat"),
        (PROMPT | {"messages": [USER | {"content": ""}]}, "missing_content", "message 1"),
        (PROMPT | {"messages": [USER, USER | {"weight": 1}]}, "invalid_weight", "message 2"),
        (PROMPT | {"tools": ["x"]}, "data_type", "item 1: write it"),
        (PROMPT | {f"m{i}": i for i in range(1000)}, "too_many_members", "1003 members"),
        (CHAT, "mixed_formats", "a chat ends with the assistant's message, a prompt with one"),
    ],
)
def test_a_broken_prompt_is_named_by_line_and_kind(row: object, code: str, expected: str) -> None:
    message = refusal(jsonl(PROMPT, row, PROMPT))

    assert "line 2: " in message
    assert f"({code})" in message
    assert expected in message


def test_only_a_file_whose_first_row_is_a_prompt_holds_prompts() -> None:
    chats = verdict(jsonl(CHAT, {"messages": [USER, ASSISTANT, USER]}))

    assert (chats.format, chats.examples) == (Format.CHAT, 2)
    assert "last_message_not_assistant" in codes(chats)

    assert verdict(jsonl(PROMPT | {"label": "sum"})).format is Format.PROMPT


def test_odd_turns_and_damaged_text_are_pointed_out() -> None:
    repeated = PROMPT | {"messages": [USER, USER]}
    damaged = PROMPT | {"messages": [USER | {"content": "2 + \ufffd?"}]}

    reported = codes(verdict(jsonl(*prompts(8), repeated, damaged)))

    assert reported == ["repeated_role", "replacement_character"]


def test_members_that_templates_can_name_are_kept_with_the_first_line_that_lacks_them() -> None:
    rows = [*prompts(3), *prompts(1, level=None), {"messages": [USER], "late": 1}, *prompts(1)]

    assert verdict(jsonl(*rows)).members == {"answer": 5, "level": 4}
    assert verdict(jsonl(*prompts(2, tools=[TOOL]))).members == {"answer": 0, "level": 0}
    assert verdict(jsonl(CHAT | {"answer": "4"})).members == {}

    odd: dict[str, Any] = {"a b": 1, "a.b": 1, "\1": 1, "": 1, "x" * 257: 1, "\u00e9": 1}

    assert verdict(jsonl(PROMPT | odd)).members == {"answer": 0, "level": 0}
