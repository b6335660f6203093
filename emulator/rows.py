"""Objects that say when they change, so that only what changed needs to be written or looked at.

A `Row` is a dataclass that lies in a `Table`. When it is put there, the dicts and lists in it are
copied into ones that report their changes too: afterwards change them through the row.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

Path = tuple[str, ...]  # ("scale_sets", KEY, "instances", "0"); () is the root
R = TypeVar("R", bound="Row")


@dataclass
class Changes:
    """The rows that changed since one follower last looked, in the order in which they did."""

    touched: dict[Path, None] = field(default_factory=dict)  # those gone too
    gone: dict[Path, None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget them: they were dealt with."""
        self.touched.clear()
        self.gone.clear()


class Ledger:
    """Tells its followers what changed."""

    def __init__(self) -> None:
        self._followers: list[Changes] = []

    def follow(self) -> Changes:
        """Changes from now on; the follower clears them when it has dealt with them."""
        self._followers.append(Changes())
        return self._followers[-1]

    def touch(self, path: Path, *, new: bool = False, gone: bool = False) -> None:
        """Write down that a row changed."""
        for changes in self._followers:
            if new:
                changes.touched.pop(path, None)  # what comes again comes last
            changes.touched[path] = None
            if gone:
                changes.gone[path] = None

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Ledger":  # a copied table reports to it
        return self


class Home:
    """Where a row lies; all parts of the row share it, and so does its copy."""

    __slots__ = ("ledger", "path")

    def __init__(self, ledger: Ledger, path: Path) -> None:
        self.ledger = ledger
        self.path = path

    def touch(self) -> None:
        """Say that the row changed."""
        self.ledger.touch(self.path)

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Home":
        return self


class Row:
    """Base of the dataclasses that are kept: each is written by itself."""

    _home: ClassVar[Home | None] = None  # of the class; a row that lies somewhere has its own

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - whatever the field takes
        if self._home is not None:
            value = self._housed(name, value, self._home)
            self._home.touch()
        object.__setattr__(self, name, value)

    def move_in(self, home: Home) -> None:
        """Lie there from now on, with all parts."""
        old = self._home
        if old is None or (old.ledger, old.path) != (home.ledger, home.path):
            object.__setattr__(self, "_home", home)
            for name in _layout(type(self)):
                object.__setattr__(self, name, self._housed(name, getattr(self, name), home))

    def paths(self) -> Iterator[Path]:
        """Where this row and every row below it lie."""
        assert self._home, "only rows that lie somewhere have a path"
        yield self._home.path
        for table in self.tables().values():
            for row in table.values():
                yield from row.paths()

    def plain(self) -> dict[str, Any]:
        """The fields that are written with the row itself: all but its tables."""
        return {n: getattr(self, n) for n, kind in _layout(type(self)).items() if not kind.table}

    def tables(self) -> "dict[str, Table[Any]]":
        """The tables in this row, by field."""
        return {n: getattr(self, n) for n, kind in _layout(type(self)).items() if kind.table}

    def _housed(self, name: str, value: Any, home: Home) -> Any:  # noqa: ANN401 - any field's
        kind = _layout(type(self)).get(name)
        if kind is None or not kind.table:
            return _part(value, home)
        path = (*home.path, name)
        if isinstance(value, Table) and (value.ledger, value.path) == (home.ledger, path):
            return value
        return Table(value, ledger=home.ledger, path=path)


class Table(dict[str, R]):
    """Rows by key. (A copy of a table reports as the table itself does: too much, never less.)"""

    ledger: Ledger | None = None
    path: Path = ()

    def __init__(
        self,
        rows: Iterable[tuple[str, R]] | dict[str, R] = (),
        *,
        ledger: Ledger | None = None,
        path: Path = (),
    ) -> None:
        super().__init__()
        self.ledger, self.path = ledger, path
        self.update(rows)

    def __setitem__(self, key: str, row: R) -> None:
        if self.ledger is not None:
            self._take_in(key, row, self.ledger)
        super().__setitem__(key, row)

    def __delitem__(self, key: str) -> None:
        if self.ledger is not None and key in self:
            _report_gone(self.ledger, (*self.path, key), self[key])
        super().__delitem__(key)

    def update(self, rows: Any = (), **more: R) -> None:  # type: ignore[override] # noqa: ANN401 - as dict's
        """Put many."""
        for key, row in dict(rows, **more).items():
            self[key] = row

    def setdefault(self, key: str, default: R) -> R:
        """Put it unless there is one."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:  # noqa: ANN401 - as dict's
        """Take one out."""
        if key not in self and default:
            return default[0]
        row = self[key]
        del self[key]
        return row

    def popitem(self) -> tuple[str, R]:
        """Take the last one out."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take all out."""
        for key in list(self):
            del self[key]

    def _take_in(self, key: str, row: R, ledger: Ledger) -> None:
        path = (*self.path, key)
        old = self.get(key)
        if old is not None and old is not row:
            _report_gone(ledger, path, old, but=row)
        row.move_in(Home(ledger, path))
        ledger.touch(path, new=old is None)
        for name, table in row.tables().items():
            if old is None or old.tables()[name] is not table:
                for inner in table:
                    ledger.touch((*path, name, inner))


class PartDict(dict[str, Any]):
    """A dict inside a row."""

    home: Home | None = None

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401 - JSON
        _touch(self.home)
        super().__setitem__(key, _part(value, self.home))

    def update(self, other: Any = (), **more: Any) -> None:  # type: ignore[override] # noqa: ANN401 - as dict's
        """Put many."""
        for key, value in dict(other, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> "PartDict":  # type: ignore[override, misc] # noqa: ANN401 - as dict's
        self.update(other)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Put it unless there is one."""
        if key not in self:
            self[key] = default
        return self[key]


class PartList(list[Any]):
    """A list inside a row."""

    home: Home | None = None

    def __setitem__(self, index: Any, value: Any) -> None:  # noqa: ANN401 - as list's
        _touch(self.home)
        super().__setitem__(index, _part(value, self.home))

    def append(self, value: Any) -> None:  # noqa: ANN401 - JSON
        """Put one at the end."""
        _touch(self.home)
        super().append(_part(value, self.home))

    def insert(self, index: Any, value: Any) -> None:  # noqa: ANN401 - JSON
        """Put one in."""
        _touch(self.home)
        super().insert(index, _part(value, self.home))

    def extend(self, values: Iterable[Any]) -> None:
        """Put many at the end."""
        for value in values:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> "PartList":  # type: ignore[misc] # as list's
        self.extend(values)
        return self


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    def report(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - any method's
        _touch(self.home)
        return method(self, *given, **named)

    return report


for _name in ("__delitem__", "pop", "popitem", "clear"):
    setattr(PartDict, _name, _reporting(getattr(dict, _name)))
for _name in ("__delitem__", "pop", "remove", "clear", "sort", "reverse", "__imul__"):
    setattr(PartList, _name, _reporting(getattr(list, _name)))


def row_at(root: Row, path: Path) -> Row | None:
    """The row that lies there, or None if it is gone."""
    found: Row | None = root
    for name, key in zip(path[::2], path[1::2], strict=True):
        found = getattr(found, name).get(key) if found else None
    return found


def to_text(row: Row) -> str:
    """The row itself as JSON, without the rows in its tables."""
    return json.dumps(row.plain(), default=Row.plain, separators=(",", ":"))


def from_plain(kind: type[R], data: dict[str, Any]) -> R:
    """A row of what `to_text` wrote. Fields that are new since have their default."""
    made = {}
    for name, known in _layout(kind).items():
        if name in data:
            value = data[name]
            made[name] = from_plain(known.row, value) if known.row and value else value
    return kind(**made)


def kind_at(root: type[Row], path: Path) -> type[Row] | None:
    """The class of the rows that lie there; None where there are none (any more)."""
    found: type[Row] | None = root
    for name in path[::2]:
        kind = _layout(found).get(name) if found else None
        found = kind.row if kind and kind.table else None
    return found


@dataclass(frozen=True)
class _Kind:
    """What a field holds."""

    row: type[Row] | None = None
    table: bool = False


_LAYOUTS: dict[type[Row], dict[str, _Kind]] = {}


def _layout(kind: Any) -> dict[str, _Kind]:  # noqa: ANN401 - a class of rows
    if kind not in _LAYOUTS:
        hints = get_type_hints(kind)
        _LAYOUTS[kind] = {f.name: _kind(kind, f.name, hints[f.name]) for f in fields(kind)}
    return _LAYOUTS[kind]


def _kind(owner: type[Row], name: str, hint: Any) -> _Kind:  # noqa: ANN401 - any type's
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = [p for p in parts if isinstance(p, type) and issubclass(p, Row)]
    if found:
        return _Kind(row=found[0])
    inner = get_args(hint)[-1:] if get_origin(hint) in (dict, list) else ()
    if not any(isinstance(i, type) and is_dataclass(i) for i in inner):
        return _Kind()
    if get_origin(hint) is list or not issubclass(inner[0], Row):
        raise TypeError(f"{owner.__name__}.{name}: dataclasses are kept as dict[str, X(Row)].")
    return _Kind(row=inner[0], table=True)


def _part(value: Any, home: Home | None) -> Any:  # noqa: ANN401 - JSON, or a row in a row
    if home is None:
        return value
    if isinstance(value, Row):
        value.move_in(home)
        return value
    if isinstance(value, PartDict | PartList) and value.home is home:
        return value
    made: PartDict | PartList
    if isinstance(value, dict):
        made = PartDict()
        for key, part in value.items():
            dict.__setitem__(made, key, _part(part, home))
    elif isinstance(value, list | tuple):
        made = PartList(_part(part, home) for part in value)
    else:
        return value
    made.home = home
    return made


def _touch(home: Home | None) -> None:
    if home is not None:
        home.touch()


def _report_gone(ledger: Ledger, path: Path, row: Row, but: Row | None = None) -> None:
    """Say that a row is gone with all below it, save what its replacement has too."""
    if but is None:
        ledger.touch(path, gone=True)
    for name, table in row.tables().items():
        kept = but.tables()[name] if but else {}
        for key in table:
            if key not in kept:
                ledger.touch((*path, name, key), gone=True)
