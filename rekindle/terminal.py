"""The only way to print: escapes control characters in untrusted text.

Names, events, errors and logs hold text of users, nodes and grader code. It cannot move the cursor,
change colours or hide: only our own styles and cursor movements pass.
"""

import sys
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from contract.printable import printable_lines


class Console(rich.console.Console):
    """A rich console that escapes control characters and does not interpret markup."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - rich's own
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does; all text passes here, also of tables and live views."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable_lines(text), style)


def write_text(text: str) -> None:
    """Write text to stdout in UTF-8 with control characters escaped."""
    write_bytes(printable_lines(text).encode())


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout in order with printed text. For files: a terminal obeys them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
