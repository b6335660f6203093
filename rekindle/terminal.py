"""The one way to a terminal. What strangers wrote cannot move its cursor, colour it or hide in it.

Names, events, errors and logs hold what users, nodes and grader code sent. A place that prints and
forgets that is safe all the same: nothing but our own styles and cursor movements passes here.
"""

import sys
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from contract.printable import printable_lines


class Console(rich.console.Console):
    """A rich console that shows control characters, and takes no text for markup."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - rich's own
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does; every piece of text, also of tables and live views, passes here."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable_lines(text), style)


def write(text: str) -> None:
    """Write to stdout as it is, in UTF-8, but for control characters; they are shown."""
    write_raw(printable_lines(text).encode())


def write_raw(data: bytes) -> None:
    """Write bytes to stdout, in order with what was printed. For files: a terminal obeys them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
