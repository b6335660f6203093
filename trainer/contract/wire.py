"""Messages: frozen dataclasses that travel as JSON, decoded strictly. Standard library only."""

import json
import types
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from trainer.contract.bounds import ANY_INTEGER, ANY_NUMBER, Bound

T = TypeVar("T")
Reader = Callable[[Any, str], Any]  # maps a value and its path to the decoded value
# Metadata of a member that is omitted while it has its default: most messages do not need it, or
# a later release added it, and earlier readers would refuse it.
LATER = {"later": True}
_NUMBERS = {int: ANY_INTEGER, float: ANY_NUMBER}  # where a member has no bounds of its own


class Message:
    """A frozen dataclass that travels as JSON. Unknown and missing members are errors."""

    def to_json(self) -> str:
        """Encode on one line, members sorted, so that equal messages are equal bytes."""
        return json.dumps(_encoded(self), sort_keys=True, separators=(",", ":"))

    def to_plain(self) -> dict[str, Any]:
        """Encode as plain JSON values, to be part of another document."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Decode, or raise ValueError that names the member at fault."""
        try:
            return cls.from_dict(json.loads(text, object_pairs_hook=_members))
        except RecursionError:
            raise ValueError(f"{cls.__name__}: nested too deeply") from None

    @classmethod
    def from_dict(cls, data: Any) -> Self:  # noqa: ANN401 - what json.loads gives
        """Build from parsed JSON, or raise ValueError that names the member at fault."""
        return decode(cls, data)


def decode(cls: type[T], data: Any, where: str = "") -> T:  # noqa: ANN401 - what json.loads gives
    """Build ``cls`` from a parsed JSON object; raise ValueError that names the member at fault."""
    if not isinstance(data, dict):
        raise ValueError(f"{where or cls.__name__}: an object is needed, not {_shorten(data)}")
    members = _members_of(cls)  # type: ignore[arg-type]  # a class is hashable
    if unknown := min(data.keys() - members.keys(), default=None):
        raise ValueError(f"{where or cls.__name__}: unknown member {_shorten(unknown)}")
    values = {}
    for name, (member, reader) in members.items():
        path = f"{where}.{name}" if where else name
        if name in data:
            values[name] = reader(data[name], path)
        elif member.default is MISSING and member.default_factory is MISSING:
            raise ValueError(f"{path}: missing")
    return cls(**values)


def _encoded(value: Any) -> Any:  # noqa: ANN401
    """Return what json.dumps takes."""
    if is_dataclass(value):
        members = {f.name: (getattr(value, f.name), f) for f in fields(value)}
        return {n: _encoded(v) for n, (v, f) in members.items() if not _is_omitted(v, f)}
    if isinstance(value, list | tuple):
        return [_encoded(v) for v in value]
    if isinstance(value, dict):
        return {k: _encoded(v) for k, v in value.items()}
    return value


def _is_omitted(value: object, member: Field[Any]) -> bool:
    return "later" in member.metadata and value == member.default


@cache
def _members_of(cls: type[Any]) -> dict[str, tuple[Field[Any], Reader]]:
    """Return the fields of a class, each with what reads it: the same for every message."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: (f, _reader(hints[f.name])) for f in fields(cls)}


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from JSON pairs; refuse a member that occurs twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _reader(hint: Any) -> Reader:  # noqa: ANN401
    if get_origin(hint) is Annotated:
        hint, *bounds = get_args(hint)
        return partial(_bounded, bounds, _plain_reader(hint))
    if hint in _NUMBERS:
        return partial(_bounded, [_NUMBERS[hint]], _plain_reader(hint))
    return _plain_reader(hint)


def _plain_reader(hint: Any) -> Reader:  # noqa: ANN401
    """Return what reads a value of this type, whatever its bounds are."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = [a for a in get_args(hint) if a is not types.NoneType]
        return partial(_optional, _reader(inner))
    if origin is tuple:
        return partial(_tuple, _reader(get_args(hint)[0]))
    if origin is dict:
        return partial(_dict, _reader(get_args(hint)[1]))
    if origin is Literal:
        return partial(_choice, get_args(hint))
    if is_dataclass(hint):
        return partial(decode, hint)  # type: ignore[arg-type]  # a class, of which is_dataclass tells mypy less
    return partial(_scalar, hint)


def _bounded(bounds: Iterable[Bound], reader: Reader, value: Any, where: str) -> Any:  # noqa: ANN401
    for bound in bounds:
        if fault := bound.fault(value):
            raise ValueError(f"{where}: {fault}")
    return reader(value, where)


def _optional(reader: Reader, value: Any, where: str) -> Any:  # noqa: ANN401
    return None if value is None else reader(value, where)


def _tuple(reader: Reader, value: Any, where: str) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: a list is needed, not {_shorten(value)}")
    return tuple(reader(v, f"{where}[{i}]") for i, v in enumerate(value))


def _dict(reader: Reader, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is needed, not {_shorten(value)}")
    return {k: reader(v, f"{where}.{k}") for k, v in value.items()}


def _scalar(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str):
        try:
            return hint(value)
        except ValueError:
            raise ValueError(f"{where}: {_shorten(value)} is none of {', '.join(hint)}") from None
    if type(value) is not hint:
        raise ValueError(f"{where}: {hint.__name__} is needed, not {_shorten(value)}")
    return value


def _choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401
    if value not in choices:
        raise ValueError(f"{where}: {_shorten(value)} is none of {', '.join(map(str, choices))}")
    return value


def _shorten(value: object) -> str:
    """Format a value for an error, shortened."""
    if isinstance(value, list | tuple | dict):
        return f"{type(value).__name__} of {len(value)}"
    return f"{value[:80]!a}" if isinstance(value, str) else f"{value!r:.80}"
