"""Convert rows to token ids and a mask of trained tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from tokenizers import Encoding

from rendering.answers import RenderedChat
from rendering.chat import render_chat, render_prompt, render_text
from rendering.templates.chat_template import RenderError, Span
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tokens:
    """One sequence, cut to the maximum length; ``trained[i]``: ids[i] is a target."""

    ids: list[int]
    trained: list[bool]


def tokenize_chat(tokenizer: Tokenizer, row: Json, max_seq_len: int, today: date) -> Tokens:
    """Render and tokenize a chat, with a mask of trained tokens."""
    rendered = render_chat(tokenizer, row, today)
    encoding = tokenizer.encode(rendered.text)
    trained = trained_mask(encoding, rendered)
    return Tokens(encoding.ids[:max_seq_len], trained[:max_seq_len])


def trained_mask(encoding: Encoding, rendered: RenderedChat) -> list[bool]:
    """Return for each token whether it lies entirely within a trained span."""
    return [_lies_within(span, rendered.trained) for span in encoding.offsets]


def tokenize_prompt(tokenizer: Tokenizer, row: Json, today: date) -> list[int]:
    """Tokenize a chat up to the start of the model's answer."""
    ids: list[int] = tokenizer.encode(render_prompt(tokenizer, row, today)).ids
    return ids


def tokenize_whole_chat(tokenizer: Tokenizer, row: Json, today: date) -> list[int]:
    """Tokenize a whole chat without a mask."""
    ids: list[int] = tokenizer.encode(render_text(tokenizer, row, today)).ids
    return ids


def tokenize_labelled(
    tokenizer: Tokenizer, row: Json, classes: Mapping[str, int], max_seq_len: int, today: date
) -> Tokens:
    """Tokenize a text or chat to classify, and append the index of its class.

    Text gets the model's special tokens around it, as in `pipeline("text-classification")`, also
    after a cut. All tokens count as trained, as token files have no other mark for them and metrics
    count them.
    """
    if row["label"] not in classes:
        labels = ", ".join(map(repr, classes))
        raise RenderError(f"the label {row['label']!r} is not one of the run's: {labels}")
    if "text" in row:
        ids = tokenizer.encode_plain(row["text"], max_seq_len)
    else:
        ids = tokenize_whole_chat(tokenizer, row, today)[:max_seq_len]
    if not ids:
        raise RenderError("the row has no tokens")
    return Tokens([*ids, classes[row["label"]]], [True] * (len(ids) + 1))


def _lies_within(token: Span, spans: tuple[Span, ...]) -> bool:
    start, end = token
    return end > start and any(a <= start and end <= b for a, b in spans)
