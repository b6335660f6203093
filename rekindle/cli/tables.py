"""Tables that commands print."""

from collections.abc import Collection

from rich.box import SIMPLE_HEAD
from rich.table import Table


def new_table(
    *columns: str,
    right: Collection[str] = (),
    no_wrap: Collection[str] = (),
    title: str | None = None,
) -> Table:
    """Return an empty table; columns in ``right`` hold numbers, those in ``no_wrap`` never wrap."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name in no_wrap,
            overflow="fold",
        )
    return table
