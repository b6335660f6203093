"""Templates of graders: text with `{{ item.x.y }}` and `{{ sample.output_text }}` fields.

Part of the contract: the service checks templates before a job is paid for, the trainer fills them.
Standard library only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MOST_HOLES = 1000
_LONGEST_HOLE = 1000  # characters
_PATH = re.compile(r"\s*[A-Za-z_]\w*(\.\w+)*\s*", re.ASCII)


@dataclass(frozen=True)
class TemplateField:
    """A field of a template: a member of the row, or of the model's answer."""

    namespace: str  # "item", "output_text" or "output_json"
    path: tuple[str, ...]  # below it; of lists, the number of a place

    def __str__(self) -> str:
        start = "item" if self.namespace == "item" else f"sample.{self.namespace}"
        return ".".join((start, *self.path))


def parse_template(template: str, where: str) -> tuple[str | TemplateField, ...]:
    """Split a template into text and fields; raise ValueError that begins with ``where``."""
    text, *pieces = template.split("{{")
    if len(pieces) > _MOST_HOLES:
        raise ValueError(f"{where}: more than {_MOST_HOLES} pairs of braces")
    parts: list[str | TemplateField] = [text]
    for piece in pieces:
        inside, end, text = piece.partition("}}")
        if not end:
            raise ValueError(f"{where}: a `{{{{` has no `}}}}`")
        parts += [_hole(inside, where), text]
    return tuple(part for part in parts if part)


def find_member(document: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - parsed JSON
    """Return the value at ``path``; raise KeyError with the path if it is missing or null."""
    for name in path:
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdigit() and int(name) < len(document):
            document = document[int(name)]
        else:
            document = None
    if document is None:
        raise KeyError(".".join(path))
    return document


def item_paths(parts: tuple[str | TemplateField, ...]) -> Iterator[tuple[str, ...]]:
    """Return the row members that a template reads."""
    return (p.path for p in parts if isinstance(p, TemplateField) and p.namespace == "item")


def _hole(inside: str, where: str) -> TemplateField:
    if len(inside) > _LONGEST_HOLE or not _PATH.fullmatch(inside):
        raise ValueError(
            f"{where}: {inside.strip()!r:.80} cannot stand in braces; write a member's name with"
            " dots, such as `item.reference` or `sample.output_text`"
        )
    namespace, *path = inside.strip().split(".")
    if namespace == "item" and path:
        return TemplateField("item", tuple(path))
    if namespace == "sample" and path[:1] == ["output_json"]:
        return TemplateField("output_json", tuple(path[1:]))
    if namespace == "sample" and path == ["output_text"]:
        return TemplateField("output_text", ())
    raise ValueError(
        f"{where}: nothing is called {inside.strip()!r:.80}; there are `item.<member of the row>`,"
        " `sample.output_text` and `sample.output_json.<member>`"
    )
