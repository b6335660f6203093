"""Migrations only add what the release before can do without: its processes run on beside ours.

`make upgrade` shows it with that release's own tests; here is what can be read out of the text.
"""

import importlib.util
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations

ROOT = Path(__file__).resolve().parents[2]
BASELINE = "0001"  # made the first tables; all since then is checked
# Revisions that take something away, each with the earlier release whose code no longer used it.
CONTRACTED: dict[str, str] = {}
NEVER = {
    r"\bdrop column\b": "drops a column",
    r"^drop (table|view|sequence)\b": "drops a table",
    r"\brename\b": "renames",
    r"\balter (column )?\w+ (set data )?type\b": "changes a type",
    r"\bset not null\b": "demands a value of old code",
    r"\bdrop default\b": "takes away a default on which old code relies",
}


REVISIONS = [
    f for f in sorted((ROOT / "migrations/versions").glob("0*.py")) if f.stem[:4] > BASELINE
]


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda f: f.stem)
def test_a_migration_leaves_the_release_before_what_it_uses(revision: Path) -> None:
    found = [] if revision.stem[:4] in CONTRACTED else list(taken_away(_sql_of(revision)))

    assert found == [], (
        "Add now, and take away a release after the one whose code stops using it;"
        " then name it in CONTRACTED"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "alter table jobs drop column phase",
        "alter table jobs add column a text, drop column b",
        "drop table bills",
        "alter table jobs rename column a to b",
        "alter table jobs rename to tasks",
        "alter table jobs alter column seed type text",
        "alter table jobs alter column a set not null",
        "alter table jobs alter column a drop default",
        "alter table jobs add column a text not null",
        "alter table jobs add column a text not null, add column b text default ''",
        "create unique index jobs_seed on jobs (seed)",
        "alter table files drop constraint files_pkey",
        "alter table jobs add constraint jobs_seed_check check (seed > 0)",
    ],
)
def test_what_takes_something_away_is_found(sql: str) -> None:
    assert list(taken_away(sql)) != []


@pytest.mark.parametrize(
    "sql",
    [
        "alter table jobs add column a text not null default '', add column b numeric(14, 6)",
        "create table t (a text not null); create unique index t_a on t (a)",
        "alter table jobs drop constraint c; alter table jobs add constraint c check (a in (1, 2))",
        "alter table jobs add column a int; alter table jobs add constraint c check (a > 0)",
        "drop index jobs_due",
    ],
)
def test_what_only_adds_is_not_complained_of(sql: str) -> None:
    assert list(taken_away(sql)) == []


def taken_away(sql: str) -> Iterator[str]:
    """What of these statements the release before could stumble over."""
    statements = [" ".join(s.split()).lower() for s in sql.split(";")]
    whole = "; ".join(statements)
    made = set(re.findall(r"create table (\w+)", whole))
    columns = set(re.findall(r"add column (\w+)", whole))
    dropped = set(re.findall(r"drop constraint (\w+)", whole))
    again = set(re.findall(r"add constraint (\w+)", whole))
    yield from (f"a constraint is dropped for good: {name}" for name in dropped - again)
    for statement in statements:
        yield from (f"{why}: {statement}" for p, why in NEVER.items() if re.search(p, statement))
        for column in re.findall(r"add column .*?(?=, (?:add|drop) |$)", statement):
            if "not null" in column and "default" not in column:
                yield f"old code does not fill it: {column}"
        unique = re.match(r"create unique index (?:concurrently )?\w+ on (\w+)", statement)
        if unique and unique[1] not in made:
            yield f"old code may write two of a kind: {statement}"
        for name, rule in re.findall(r"add constraint (\w+) (.*?)(?=, add |$)", statement):
            if name not in dropped and not columns & set(re.findall(r"\w+", rule)):
                yield f"old code may not obey it: {name}"


def _sql_of(revision: Path) -> str:
    """What its upgrade says to PostgreSQL."""
    spec = importlib.util.spec_from_file_location(revision.stem, revision)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = io.StringIO()
    options = {"as_sql": True, "output_buffer": written}
    with Operations.context(MigrationContext.configure(dialect_name="postgresql", opts=options)):
        module.upgrade()
    return written.getvalue()
