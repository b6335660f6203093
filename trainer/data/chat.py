"""A chat row becomes token ids and a mask of the tokens to train: what the assistant says.

The chat template marks the assistant's text with {% generation %}. Where a model's template
does not, each assistant turn is found as the difference between the rendered chat up to it
(with the generation prompt) and the rendered chat including it.

Some templates print today's date. They get the job's: a resume on another day is the same run.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import Any

from transformers.utils import chat_template_utils

Span = tuple[int, int]  # characters [start, end)
NOWHERE = (0, 0)
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class Tokens:
    """One row, cut to the longest allowed length; ``trained[i]`` says that ids[i] is a target."""

    ids: list[int]
    trained: list[bool]


def tokenize(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped here
    row: dict[str, Any],
    max_seq_len: int,
    today: date,
) -> Tokens:
    """Render a row through the chat template and mark what is trained."""
    messages, tools = [_plain(m) for m in row["messages"]], row.get("tools")
    template = tokenizer.get_chat_template(None, tools)
    _stop_the_calendar(template, today)
    marked = bool(GENERATION.search(template))
    find = _marked_spans if marked else _differing_spans
    text, spans = find(tokenizer, template, messages, tools)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    wanted = _weighed(messages, spans)
    trained = [_within(span, wanted) for span in encoded["offset_mapping"]]
    return Tokens(encoded["input_ids"][:max_seq_len], trained[:max_seq_len])


def prompt_ids(tokenizer: Any, row: dict[str, Any], today: date) -> list[int]:  # noqa: ANN401
    """Render a row through the chat template, up to where the model's answer begins."""
    return _ids(tokenizer, row, today, add_generation_prompt=True)


def chat_ids(tokenizer: Any, row: dict[str, Any], today: date) -> list[int]:  # noqa: ANN401
    """Render a whole row through the chat template; nothing of it is to be trained."""
    return _ids(tokenizer, row, today)


def _ids(tokenizer: Any, row: dict[str, Any], today: date, **options: bool) -> list[int]:  # noqa: ANN401
    messages, tools = [_plain(m) for m in row["messages"]], row.get("tools")
    template = tokenizer.get_chat_template(None, tools)
    _stop_the_calendar(template, today)
    text, _ = _render(tokenizer, template, messages, tools, **options)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _stop_the_calendar(template: str, today: date) -> None:
    """Have the template's `strftime_now` speak of this day.

    What is handed to `render_jinja_template` arrives as plain data, and so no function can be.
    """
    compiled = chat_template_utils._compile_jinja_template(template)  # noqa: SLF001 - see above
    compiled.globals["strftime_now"] = today.strftime


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message as every chat template knows it: one text, and no role but the usual four.

    OpenAI's "developer" is its newer word for "system". Members that are null are left out, as
    transformers does: templates would print "None".
    """
    plain = {name: value for name, value in message.items() if value is not None}
    if plain["role"] == "developer":
        plain["role"] = "system"
    if isinstance(plain.get("content"), list):
        plain["content"] = "".join(part["text"] for part in plain["content"])
    return plain


def _render(
    tokenizer: Any,  # noqa: ANN401
    template: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    **options: bool,
) -> tuple[str, list[Span]]:
    texts, spans = chat_template_utils.render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=template,
        **tokenizer.special_tokens_map,
        **options,
    )
    return texts[0], spans[0] if spans else []


def _marked_spans(
    tokenizer: Any,  # noqa: ANN401
    template: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
) -> tuple[str, list[Span]]:
    text, spans = _render(tokenizer, template, messages, tools, return_assistant_tokens_mask=True)
    return text, [(start, end) for start, end in spans]


def _differing_spans(
    tokenizer: Any,  # noqa: ANN401
    template: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
) -> tuple[str, list[Span]]:
    text, _ = _render(tokenizer, template, messages, tools)
    spans = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if not message.get("weight", 1):
            spans.append(NOWHERE)  # nobody asks; a template may have rewritten it
            continue
        before, _ = _render(tokenizer, template, messages[:i], tools, add_generation_prompt=True)
        until, _ = _render(tokenizer, template, messages[: i + 1], tools)
        if not (until.startswith(before) and text.startswith(until)):
            raise ValueError(
                "the model's chat template rewrites earlier turns, so the assistant's text cannot "
                "be told apart; mark it in the template with {% generation %}"
            )
        spans.append((len(before), len(until)))
    return text, spans


def _weighed(messages: list[dict[str, Any]], spans: list[Span]) -> list[Span]:
    """The spans of assistant messages that are not switched off with ``"weight": 0``."""
    said = [m for m in messages if m["role"] == "assistant"]
    if len(said) != len(spans):
        raise ValueError(
            f"{len(said)} assistant messages, but the chat template marks {len(spans)} of them"
        )
    return [span for message, span in zip(said, spans, strict=True) if message.get("weight", 1)]


def _within(token: Span, spans: list[Span]) -> bool:
    start, end = token
    return end > start and any(a <= start and end <= b for a, b in spans)
