"""The part of Resource Graph's query language that queries about Spot and scale sets need.

A query is a table and stages behind bars: where, project, project-away, extend, order by, top,
take, distinct, count, summarize, mv-expand, join. Anything else is refused as unreadable.
"""

from collections.abc import Callable
from itertools import count as numbers

from emulator.market.kql_expressions import Named, Reader, Row, unknown
from emulator.market.kql_values import Value, number, order, text

Tables = Callable[[str], list[Row]]  # by name in lower case; KeyError for none
Query = Callable[[Tables], list[Row]]
Stage = Callable[[list[Row], Tables], list[Row]]
AGGREGATES: dict[str, Callable[[list[Value]], Value]] = {
    "count": len,
    "dcount": lambda values: len({text(value) for value in values}),
    "sum": lambda values: sum(number(value) or 0.0 for value in values),
    "avg": lambda values: sum(number(v) or 0.0 for v in values) / len(values) if values else None,
    "min": lambda values: min((v for v in values if v is not None), key=order, default=None),
    "max": lambda values: max((v for v in values if v is not None), key=order, default=None),
}
KINDS = ("inner", "innerunique", "leftouter")


def read(text_: str) -> Query:
    """The query as something to run; QueryError for what cannot be read."""
    reader = Reader(text_)
    query = _pipeline(reader)
    reader.need("<EOF>")
    return query


def _pipeline(reader: Reader) -> Query:
    name = reader.word()
    stages = []
    while reader.take("|"):
        stages.append(_stage(reader))

    def run(tables: Tables) -> list[Row]:
        try:
            rows = tables(name.lower())
        except KeyError:
            raise unknown(f"table or column or scalar expression named '{name}'") from None
        for stage in stages:
            rows = stage(rows, tables)
        return rows

    return run


def _stage(reader: Reader) -> Stage:
    return STAGES[reader.need(*STAGES)](reader)


def _where(reader: Reader) -> Stage:
    wanted = reader.expression().value
    return lambda rows, _: [row for row in rows if wanted(row)]


def _project(reader: Reader) -> Stage:
    columns = _columns(reader)
    return lambda rows, _: [{name: c.value(row) for name, c in columns} for row in rows]


def _project_away(reader: Reader) -> Stage:
    gone = [reader.word()]
    while reader.take(","):
        gone.append(reader.word())
    return lambda rows, _: [{k: v for k, v in row.items() if k not in gone} for row in rows]


def _extend(reader: Reader) -> Stage:
    columns = _columns(reader)
    return lambda rows, _: [row | {name: c.value(row) for name, c in columns} for row in rows]


def _order(reader: Reader) -> Stage:
    reader.need("by")
    return _ordered(_keys(reader))


def _top(reader: Reader) -> Stage:
    most = int(reader.word("number"))
    reader.need("by")
    ordered = _ordered(_keys(reader))
    return lambda rows, tables: ordered(rows, tables)[:most]


def _take(reader: Reader) -> Stage:
    most = int(reader.word("number"))
    return lambda rows, _: rows[:most]


def _count(_reader: Reader) -> Stage:
    return lambda rows, _: [{"Count": len(rows)}]


def _distinct(reader: Reader) -> Stage:
    columns = _columns(reader)

    def run(rows: list[Row], _: Tables) -> list[Row]:
        made = [{name: c.value(row) for name, c in columns} for row in rows]
        return list({_identity(list(row.values())): row for row in reversed(made)}.values())[::-1]

    return run


def _summarize(reader: Reader) -> Stage:
    made = [_aggregate(reader)] if not reader.sees("by") else []
    while reader.take(","):
        made.append(_aggregate(reader))
    keys = _columns(reader) if reader.take("by") else []

    def run(rows: list[Row], _: Tables) -> list[Row]:
        groups: dict[tuple[str, ...], tuple[list[Value], list[Row]]] = {}
        for row in rows:
            values = [key.value(row) for _, key in keys]
            groups.setdefault(_identity(values), (values, []))[1].append(row)
        if not keys and not groups:
            groups[()] = ([], [])
        names = [name for name, _ in keys]
        return [
            dict(zip(names, values, strict=True)) | {name: of(inside) for name, of in made}
            for values, inside in groups.values()
        ]

    return run


def _aggregate(reader: Reader) -> tuple[str, Callable[[list[Row]], Value]]:
    """`[name =] count()`, `sum(expression)` and the like."""
    name, function = "", reader.word()
    if reader.take("="):
        name, function = function, reader.word()
    if function not in AGGREGATES:
        raise unknown(f"aggregate function '{function}'")
    reader.need("(")
    inner = None if reader.sees(")") else reader.expression()
    reader.need(")")
    if inner is None and function != "count":
        raise unknown(f"the argument of '{function}'")
    of = inner.value if inner else (lambda _row: None)
    default = f"{function}_{inner.name if inner else ''}"
    return name or default, lambda rows: AGGREGATES[function]([of(row) for row in rows])


def _expand(reader: Reader) -> Stage:
    column = reader.named()

    def run(rows: list[Row], _: Tables) -> list[Row]:
        made = []
        for row in rows:
            inside = column.value(row)
            parts = inside if isinstance(inside, list) else [inside]
            made += [row | {column.name: part} for part in parts]
        return made

    return run


def _join(reader: Reader) -> Stage:
    kind = "innerunique"
    if reader.take("kind"):
        reader.need("=")
        kind = reader.need(*KINDS)
    reader.need("(")
    other = _pipeline(reader)
    reader.need(")")
    reader.need("on")
    names = [reader.word()]
    while reader.take(","):
        names.append(reader.word())

    def run(rows: list[Row], tables: Tables) -> list[Row]:
        right = other(tables)
        if kind == "innerunique":
            rows = list(
                {_identity([row.get(n) for n in names]): row for row in rows[::-1]}.values()
            )
            rows.reverse()
        return [both for row in rows for both in _joined(row, right, names, kind)]

    return run


def _joined(row: Row, right: list[Row], names: list[str], kind: str) -> list[Row]:
    for name in names:
        if name not in row:
            raise unknown(f"scalar expression named '{name}'")
    partners = [r for r in right if all(r.get(n) == row[n] for n in names)]
    if not partners and kind == "leftouter":
        partners = [{}]
    return [row | {f"{k}1" if k in row else k: v for k, v in r.items()} for r in partners]


def _columns(reader: Reader) -> list[tuple[str, Named]]:
    found = [reader.named()]
    while reader.take(","):
        found.append(reader.named())
    spare = numbers(1)
    return [(column.name or f"Column{next(spare)}", column) for column in found]


def _keys(reader: Reader) -> list[tuple[Named, bool]]:
    """Columns with whether each falls, as they do unless told otherwise."""
    found: list[tuple[Named, bool]] = []
    while not found or reader.take(","):
        key = reader.expression()
        falls = not reader.take("asc")
        reader.take("desc")
        found.append((key, falls))
    return found


def _ordered(keys: list[tuple[Named, bool]]) -> Stage:
    def run(rows: list[Row], _: Tables) -> list[Row]:
        rows = list(rows)
        for key, falls in reversed(keys):
            rows.sort(key=lambda row, of=key.value: order(of(row)), reverse=falls)  # type: ignore[misc] # mypy cannot type a default
        return rows

    return run


def _identity(values: list[Value]) -> tuple[str, ...]:
    return tuple(text(value) for value in values)


STAGES: dict[str, Callable[[Reader], Stage]] = {
    "where": _where,
    "project": _project,
    "project-away": _project_away,
    "extend": _extend,
    "order": _order,
    "sort": _order,
    "top": _top,
    "take": _take,
    "limit": _take,
    "count": _count,
    "distinct": _distinct,
    "summarize": _summarize,
    "mv-expand": _expand,
    "join": _join,
}
