"""Tables and cells in Markdown."""

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield line(head)
    yield "|" + "---|" * len(head)
    yield from map(line, rows)


def line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(map(cell, cells)) + " |"


def cell(text: str) -> str:
    """Return text on one line, with escaped cell separators."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    """Return text as code; empty for an empty text."""
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Return texts as code, separated by commas."""
    return ", ".join(map(code, texts))
