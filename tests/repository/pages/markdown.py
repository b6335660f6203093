"""Tables and cells in Markdown."""

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield line(head)
    yield "|" + "---|" * len(head)
    yield from map(line, rows)


def line(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(map(cell, cells)) + " |"


def cell(text: str) -> str:
    """Text on one line that ends no cell."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    """Text as code; nothing for an empty one."""
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Texts as code, separated by commas."""
    return ", ".join(map(code, texts))
