"""Find content of a row that its rendering lacks: calls, tools, messages, reasoning, text."""

import json
import unicodedata
from collections.abc import Iterator

from rendering.sequences import RowSequence, SequenceProblem
from rendering.templates.chat_template import Message
from rendering.templates.conversation import is_trained, template_tools
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer

_MAX_SHOWN = 40  # characters of a text in a message


def find_lost_in_template(sequence: RowSequence) -> Iterator[SequenceProblem]:
    """Yield what the template leaves out of a row."""
    yield from _lost_tools(sequence)
    if sequence.rendered and (extra := sequence.rendered.only_in_prompts):
        yield SequenceProblem(
            "prompt_differs",
            f"the model's chat template asks for an answer with {extra!a}, and leaves that out of "
            "a finished answer; the model is trained without it",
        )
    spans = iter(sequence.rendered.answers) if sequence.rendered else iter(())
    for number, message in enumerate(sequence.row.get("messages", ()), 1):
        text = sequence.text
        if message["role"] == "assistant" and (span := next(spans, None)) and span[1] > span[0]:
            text = sequence.text[slice(*span)]
        yield from _lost_in_message(message, number, text)


def find_lost_in_tokens(
    text: str, ids: list[int], tokenizer: Tokenizer
) -> Iterator[SequenceProblem]:
    """Yield a problem if decoding tokens changes the text; spaces and case may change."""
    unknown = tokenizer.token_id("unk_token")
    if unknown is not None and unknown != tokenizer.eos_token_id and unknown in ids:
        yield SequenceProblem(
            "text_not_kept",
            f"{ids.count(unknown)} pieces of the text are unknown to the model's tokenizer, and "
            "are read as its unknown token",
        )
        return
    decoded = tokenizer.decode(ids)
    if decoded == text or _normalize(decoded) == _normalize(text):
        return
    yield SequenceProblem(
        "text_not_kept",
        "the model's tokenizer does not give the text back as it was: "
        f"{_first_difference(_normalize(text), _normalize(decoded))}",
    )


def _lost_tools(sequence: RowSequence) -> Iterator[SequenceProblem]:
    tools = template_tools(sequence.row) if "messages" in sequence.row else None
    names = [tool["function"]["name"] for tool in tools or ()]
    if missing := [name for name in names if name not in sequence.text]:
        yield SequenceProblem(
            "tools_not_rendered",
            f"the model's chat template does not list the tools ({_list_names(missing)}), so the "
            "model does not know of them; describe them in a system message",
        )


def _lost_in_message(message: Message, number: int, text: str) -> Iterator[SequenceProblem]:
    content = _plain_text(message.get("content"))
    calls = list(message.get("tool_calls") or ())
    if message.get("function_call"):
        calls = [{"function": message["function_call"]}]
    if missing := list(_lost_calls(calls, text)):
        yield SequenceProblem(
            "tool_call_not_rendered",
            f"message {number} calls {_list_names(missing)}, and the model's chat template leaves "
            "the call out; write the call as content, or train a model whose template has tool "
            "calls",
            is_error=is_trained(message) and not content.strip(),
        )
    if (reasoning := message.get("reasoning_content")) and reasoning.strip() not in text:
        yield SequenceProblem(
            "reasoning_not_rendered",
            f"the model's chat template leaves the reasoning_content of message {number} out",
        )
    if content.strip() and content.strip() not in text:
        yield SequenceProblem(
            "message_not_rendered",
            f"the model's chat template leaves out or changes what message {number} "
            f"({message['role']}) says: {content.strip()[:_MAX_SHOWN]!a}",
        )


def _lost_calls(calls: list[Json], text: str) -> Iterator[str]:
    """Yield the names of tool calls, and of arguments, that the text lacks."""
    names = [call["function"]["name"] for call in calls]
    if missing := [name for name in dict.fromkeys(names) if text.count(name) < names.count(name)]:
        yield from missing
        return
    for call in calls:
        name, raw_arguments = call["function"]["name"], call["function"].get("arguments") or "{}"
        arguments = json.loads(raw_arguments) if isinstance(raw_arguments, str) else raw_arguments
        for key in arguments:
            if key not in text and json.dumps(key)[1:-1] not in text:
                yield f"{name}(... {key} ...)"


def _plain_text(content: object) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else ""


def _list_names(names: list[str]) -> str:
    return ", ".join(f"{name!a:.60}" for name in names[:3]) + (", ..." if names[3:] else "")


def _normalize(text: str) -> str:
    """Return the text without differences that tokenizers may make."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _first_difference(text: str, decoded: str) -> str:
    pairs = zip(text, decoded, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(text), len(decoded)))
    return f"{text[at : at + _MAX_SHOWN]!a} becomes {decoded[at : at + _MAX_SHOWN]!a}"
