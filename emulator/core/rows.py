"""Frozen rows, of which the state is made, and a ledger of those that changed.

A row is a frozen dataclass, and the dicts and lists in it are frozen too, as deep as they go. Only
`emulator.core.state.EmulatorState` puts another row in its place, and notes that in the ledger.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from types import UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin

Path = tuple[str, ...]  # ("operations", ID) or ("scale_sets", KEY, "instances", ID)
R = TypeVar("R", bound="FrozenRow")


@dataclass
class RowChanges:
    """The rows that changed since one follower last looked, in the order in which they did."""

    touched: dict[Path, None] = field(default_factory=dict)  # removed ones too
    removed: dict[Path, None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all changes."""
        self.touched.clear()
        self.removed.clear()


class Ledger:
    """Reports changes to its followers."""

    def __init__(self) -> None:
        self._followers: list[RowChanges] = []

    def follow(self) -> RowChanges:
        """Return the changes from now on; the follower clears them."""
        self._followers.append(RowChanges())
        return self._followers[-1]

    def note(self, path: Path, *, new: bool = False, removed: bool = False) -> None:
        """Note that a row changed; a new one comes last."""
        for changes in self._followers:
            if new:
                changes.touched.pop(path, None)
            changes.touched[path] = None
            if removed:
                changes.removed[path] = None


class FrozenDict(dict[str, Any]):
    """A dict that refuses changes; `copy.deepcopy` returns one that takes them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}


class FrozenList(list[Any]):
    """A list that refuses changes; `copy.deepcopy` returns one that takes them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.deepcopy(value, memo) for value in self]


def _refuse(method: str) -> Callable[..., Any]:
    def refuse(*_given: object, **_named: object) -> None:
        raise TypeError(f"{method}: rows are frozen; put a changed copy into the state.")

    return refuse


for _name in ("setitem", "delitem", "ior", "update", "setdefault", "pop", "popitem", "clear"):
    _method = _name if hasattr(dict, _name) else f"__{_name}__"
    setattr(FrozenDict, _method, _refuse(_method))
for _name in ("setitem", "delitem", "iadd", "imul", "append", "extend", "insert", "pop", "remove",
              "clear", "sort", "reverse"):  # fmt: skip
    _method = _name if hasattr(list, _name) else f"__{_name}__"
    setattr(FrozenList, _method, _refuse(_method))


def frozen(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value with every dict and list in it frozen."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    return FrozenList(map(frozen, value)) if isinstance(value, list | tuple) else value


class FrozenRow:
    """Base of the frozen dataclasses that the state keeps, each in its table under its key."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    table: ClassVar[str] = ""
    key_member: ClassVar[str] = "id"

    def __post_init__(self) -> None:
        """Freeze the JSON in it."""
        for name in _layout(type(self)).json:
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @property
    def key(self) -> str:
        """Key of the row in its table."""
        return str(getattr(self, self.key_member))

    @property
    def row_path(self) -> Path:
        """Table and key, under which the state keeps the row."""
        return self.table, self.key

    def plain(self) -> dict[str, Any]:
        """Return the members that are written with the row: all but rows with keys of their own."""
        return {name: getattr(self, name) for name in _layout(type(self)).rows}


def to_text(row: FrozenRow) -> str:
    """Return the row as JSON."""
    return json.dumps(row.plain(), default=FrozenRow.plain, separators=(",", ":"))


def from_plain(kind: type[R], data: dict[str, Any]) -> R:
    """Return the row that `to_text` wrote; members that are new since have their defaults."""
    values = {}
    for name, inner in _layout(kind).rows.items():
        if name in data:
            values[name] = from_plain(inner, data[name]) if inner and data[name] else data[name]
    return kind(**values)


@dataclass(frozen=True)
class _Layout:
    """The fields of a kind of rows, without its tables."""

    json: tuple[str, ...]  # those that hold dicts and lists
    rows: dict[str, type[FrozenRow] | None]  # all, with the kind of row that one holds


_LAYOUTS: dict[type[FrozenRow], _Layout] = {}


def _layout(kind: type[FrozenRow]) -> _Layout:
    if kind not in _LAYOUTS:
        hints = {f.name: _members(f.type) for f in fields(kind) if not f.metadata.get("table")}
        json_ = [n for n, parts in hints.items() if {get_origin(p) for p in parts} & {dict, list}]
        rows = {n: next(filter(_is_row, parts), None) for n, parts in hints.items()}
        _LAYOUTS[kind] = _Layout(tuple(json_), rows)
    return _LAYOUTS[kind]


def _is_row(hint: Any) -> bool:  # noqa: ANN401 - any type's
    return isinstance(hint, type) and issubclass(hint, FrozenRow)


def _members(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any type's
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)
