"""Which tokens of a chat are trained."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rendering.rows import read_answers, read_chat
from rendering.tokenizer import Tokenizer
from rendering.tokens import Tokens, tokenize_chat
from tests.unit.trainer.model.tiny_tokenizer import UNMARKED, tiny_tokenizer
from trainer.data.batch import padded
from trainer.data.rows import JsonlRows
from trainer.process.non_retryable import NonRetryableError
from trainer.sample_data.tiny_chats import chats
from trainer.tiny import CHAT_TEMPLATE

TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What is 2 plus 2?"},
    {"role": "assistant", "content": "2 plus 2 is 4."},
    {"role": "user", "content": "And 3 plus 3?"},
    {"role": "assistant", "content": "3 plus 3 is 6."},
]
TODAY = date(2026, 2, 3)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Return the tiny model's tokenizer."""
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def plain_tokenizer() -> Tokenizer:
    """Return the same tokenizer, but its template does not mark what the assistant says."""
    return tiny_tokenizer(UNMARKED)


def trained_text(tokenizer: Tokenizer, tokens: Tokens) -> str:
    ids = [i for i, trained in zip(tokens.ids, tokens.trained, strict=True) if trained]
    return str(tokenizer.decode(ids))


def test_a_member_that_is_null_is_not_there_and_a_content_that_is_null_is_empty() -> None:
    tokenizer = tiny_tokenizer(
        "{% for m in messages %}{{ m.name if m.name is defined else 'nameless' }}"
        "{% generation %}{{ m.content + '.' }}{% endgeneration %}{% endfor %}"
    )
    row = {"messages": [{"role": "assistant", "content": None, "name": None}]}

    assert tokenizer.decode(tokenize_chat(tokenizer, row, 512, TODAY).ids) == "nameless."


def test_templates_with_and_without_marks_train_the_same_tokens(
    tokenizer: Tokenizer, plain_tokenizer: Tokenizer
) -> None:
    for messages in chats(50, seed=3):
        row = {"messages": messages}
        assert tokenize_chat(plain_tokenizer, row, 512, TODAY) == tokenize_chat(
            tokenizer, row, 512, TODAY
        )


def test_a_turn_that_is_not_trained_may_be_rewritten_later(plain_tokenizer: Tokenizer) -> None:
    """As Qwen 3 does, which forgets what was thought in earlier turns."""
    short = "message['content'][:3] if message['role'] == 'assistant' and not loop.last else "
    template = UNMARKED.replace("message['content']", f"({short}message['content'])")
    forgetful = tiny_tokenizer(template)
    said = [TALK[2] | {"weight": 0}, TALK[4]]

    tokens = tokenize_chat(
        forgetful, {"messages": [*TALK[:2], said[0], TALK[3], said[1]]}, 512, TODAY
    )

    assert trained_text(forgetful, tokens) == "3 plus 3 is 6.<|end|>"
    with pytest.raises(ValueError, match="rewrites earlier turns"):
        tokenize_chat(forgetful, {"messages": TALK}, 512, TODAY)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, UNMARKED])
def test_a_template_that_prints_the_date_prints_the_jobs(template: str) -> None:
    """As Llama's do; the second day shows that no earlier one sticks."""
    dated = tiny_tokenizer(
        "{%- if strftime_now is defined -%}{{- strftime_now('%d %b %Y') -}}{%- endif -%}" + template
    )
    for day, said in ((TODAY, "03 Feb 2026"), (date(2024, 7, 26), "26 Jul 2024")):
        tokens = tokenize_chat(dated, {"messages": TALK}, 512, day)
        assert dated.decode(tokens.ids).startswith(said)


def test_a_long_row_is_cut_and_may_be_left_without_a_target(tokenizer: Tokenizer) -> None:
    tokens = tokenize_chat(tokenizer, {"messages": TALK}, 5, TODAY)

    assert len(tokens.ids) == len(tokens.trained) == 5
    assert padded([tokens], pad_id=0).targets == 0


def test_a_broken_row_is_named_by_its_line_as_an_editor_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"messages": []}\n\n\r\n{"messages"\n')

    with pytest.raises(NonRetryableError, match=r"rows\.jsonl, line 4: not JSON .* at column 12"):
        JsonlRows(path, read_chat)[1]


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ([], "`input` with a list `messages`"),
        ({"input": {"messages": TALK}, "preferred_output": []}, "a list `non_preferred_output`"),
    ],
)
def test_a_preference_that_lacks_something_says_what_it_needs(row: Any, lacks: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=lacks):
        read_answers(row)
