r"""Extract the final answer of a text, as data sets of mathematics mark it.

The last occurrence of the first mark that the text has: `\\\\boxed{x}` (MATH), `#### x` (gsm8k), a
line `Answer: x` or `A: x`; else the last number. `same_answer` compares whole texts where the
reference has none of them.
"""

import re
from fractions import Fraction

_MARKS = (
    re.compile(r"####[ \t]*(.+)"),
    re.compile(
        r"^[ \t*]*(?:the |final )*(?:answer|a)[ \t*]*:[ \t*]*(.+)$", re.IGNORECASE | re.MULTILINE
    ),
)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+", re.ASCII)
_FULL_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))(?:/(\d+))?", re.ASCII)
_LONGEST = 200  # characters of a number: longer ones are compared as text


def same_answer(text: str, reference: str) -> bool:
    """Return whether both have the same final answer; an empty answer equals nothing.

    A reference without mark and number, such as `Paris`, is compared with the marked answer, or
    else with the whole text. A text that is the reference's answer and nothing else is right.
    """
    marked, expected = _marked(text), final_answer(reference)
    if expected is None:
        return _plain(marked or text) == _plain(reference) != ""
    if marked is None and _plain(text) == _plain(expected) != "":
        return True
    answer = final_answer(text)
    if answer is None:
        return False
    a, b = _value(answer), _value(expected)
    if a is not None and b is not None:
        return a == b
    return _plain(answer) == _plain(expected)


def final_answer(text: str) -> str | None:
    """Return the final answer as written, or None."""
    marked = _marked(text)
    if marked is not None:
        return marked
    numbers = _NUMBER.findall(text)
    return str(numbers[-1]) if numbers else None


def _marked(text: str) -> str | None:
    boxed = _boxed(text)
    if boxed is not None:
        return boxed
    for mark in _MARKS:
        if matches := mark.findall(text):
            return str(matches[-1])
    return None


def _boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{...}`, with balanced braces."""
    _, mark, tail = text.rpartition("\\boxed{")
    if not mark:
        return None
    depth = 1
    for i, sign in enumerate(tail):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth == 0:
            return tail[:i]
    return None


def _value(written: str) -> Fraction | None:
    """Return the number, or None. `x = 5`, `$1,200`, `30\\%` and `42 apples` are numbers."""
    if len(written) > _LONGEST:
        return None
    bare = re.sub(r"^\s*[A-Za-z]\s*=|\s[A-Za-z ]+\.?$", "", written.strip())
    bare = re.sub(r"[\s,$€£%*]|\\[$%!,]", "", bare).rstrip(".")
    bare = re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", bare)
    match = _FULL_NUMBER.fullmatch(bare)
    if match is None or (match[2] is not None and int(match[2]) == 0):
        return None
    return Fraction(match[1]) / int(match[2] or 1)


def _plain(written: str) -> str:
    return " ".join(written.strip(" \t\r\n*.$").casefold().split())
