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
OBEYED = {  # rules on columns that were there, and why the release before cannot break them
    "attempts_outlived_is_counted_check": "it only raises survived, and writes no dates",
}
NEVER = {  # of statements other than `alter table`
    r"^drop (?!index\b)": "drops what old code may use",
    r"\brename\b": "renames",
}
ALTER = re.compile(r"alter table (?:if exists )?(?:only )?(?:\w+\.)?(\w+) (.*)")
COLUMN = re.compile(
    r"add (?:column )?(?:if not exists )?(?!(?:constraint|unique|check|primary|foreign|exclude)\b)"
    r"(\w+) (.*)"
)
RULE = re.compile(r"add (?:constraint (\w+) )?((?:check|foreign key|unique|primary|exclude)\b.*)")
DROPPED = re.compile(r"drop constraint (?:if exists )?(\w+)")
UNIQUE = re.compile(
    r"create unique index (?:concurrently )?(?:if not exists )?(?:(?!on )\w+ )?on (?:only )?(\w+)"
)
HARMLESS = re.compile(  # actions of `alter table` that say nothing of what may be in it
    r"set \(.*|validate constraint \w+|alter (column )?\w+ (set default .*|drop not null)"
)
# Words of a rule; what a bracket follows is a function, and no column either.
NO_COLUMNS = {"and", "or", "not", "is", "in", "null", "true", "false", "default", "foreign"}


REVISIONS = [
    f for f in sorted((ROOT / "migrations/versions").glob("0*.py")) if f.stem[:4] > BASELINE
]


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda f: f.stem)
def test_a_migration_leaves_the_release_before_what_it_uses(revision: Path) -> None:
    found = [] if revision.stem[:4] in CONTRACTED else list(taken_away(_sql_of(revision)))

    assert [why for why in found if why.split()[-1] not in OBEYED] == [], (
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
        "alter table jobs add unique (seed)",
        "alter table jobs add check (seed > 0)",
        "alter table jobs add foreign key (model) references models (id)",
        "alter table jobs add column a int, add unique (a)",
        "create unique index if not exists jobs_seed on jobs (seed)",
        "create unique index on jobs (seed)",
        "alter table jobs drop a",
        "alter table jobs drop if exists a",
        "alter table jobs add a text not null",
        "alter table jobs add column a text default '' unique",
        "alter table jobs add column a int check (a > 0 and seed > 0)",
        "alter table jobs add column a int check(a > 0) not null",
        "drop materialized view totals",
        "alter table jobs add column a int, add constraint c check (a is not null and seed > 0)",
        "alter table bills add column seed int; alter table jobs add check (seed > 0)",
        "alter table jobs add check (model in ('a; b', 'seed')), add column a int",
        "-- a comment;\nalter table jobs owner to nobody",
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
        "alter table jobs add column a int, add b int, add check ((a is null) = (b is null))",
        "alter table jobs add a text references files (id), add check (a <> 'seed, not null')",
        "alter table jobs alter column seed set default 1, set (fillfactor = 70)",
        "create table t (a int); alter table t add unique (a)",
        "alter table jobs add a text, add foreign key (a) references t (id) on delete cascade",
        "drop index jobs_due",
    ],
)
def test_what_only_adds_is_not_complained_of(sql: str) -> None:
    assert list(taken_away(sql)) == []


def taken_away(sql: str) -> Iterator[str]:
    """What of these statements the release before could stumble over."""
    statements = _statements(sql)
    made = set(re.findall(r"\bcreate table (?:if not exists )?(\w+)", "; ".join(statements)))
    actions: dict[str, list[str]] = {}  # by table
    for statement in statements:
        unique = UNIQUE.match(statement)
        if altered := ALTER.fullmatch(statement):
            actions.setdefault(altered[1], []).extend(_apart(altered[2]))
        elif unique and unique[1] not in made:
            yield f"old code may write two of a kind: {statement}"
        else:
            found = (why for p, why in NEVER.items() if re.search(p, statement))
            yield from (f"{why}: {statement}" for why in found)
    for table in actions.keys() - made:
        yield from (f"{table}: {why}" for why in _of_table(actions[table]))


def _of_table(actions: list[str]) -> Iterator[str]:
    """Whatever is not known to be harmless."""
    columns = {found[1]: found[2] for a in actions if (found := COLUMN.fullmatch(a))}
    rules = [found.groups() for a in actions if (found := RULE.fullmatch(a))]
    dropped = {found[1] for a in actions if (found := DROPPED.fullmatch(a))}
    known = (COLUMN, RULE, DROPPED, HARMLESS)
    for action in actions:
        if not any(pattern.fullmatch(action) for pattern in known):
            yield f"not known to be harmless: {action}"
    for name in dropped - {name for name, _ in rules}:
        yield f"a constraint is dropped for good: {name}"
    for name, told in columns.items():
        if "default" not in told and re.search(r"(?<!is )not null|primary key", told):
            yield f"old code does not fill it: {name}"
        if "default" in told and re.search(r"\b(unique|primary key)\b", told):
            yield f"old code may write two of a kind: {name}"
        if old := _named(" ".join(re.split(r"\bcheck\b", told)[1:])) - columns.keys():
            yield f"old code may not obey it: {name}, of {old}"
    for name, rule in rules:
        of_old = _named(rule) - columns.keys() or not rule.startswith(("check", "foreign"))
        if of_old and name not in dropped:
            yield f"old code may not obey it: {name or rule}"


def _named(rule: str) -> set[str]:
    """The columns that a rule of this table names, and perhaps a word too many."""
    own = re.sub(r"\breferences \w+( ?\([^)]*\))?( on \w+ (cascade|restrict))*", "", rule)
    return set(re.findall(r"(?<!:)\b[a-z_]\w*\b(?! ?\()", own)) - NO_COLUMNS


def _statements(sql: str) -> list[str]:
    """In small letters, with single spaces; without comments and what is said in quotes."""
    bare = re.sub(r"'[^']*'", "''", re.sub(r"--.*|(?s:/\*.*?\*/)", "", sql)).replace('"', "")
    return [" ".join(s.split()).lower() for s in bare.split(";")]


def _apart(actions: str) -> list[str]:
    """What is between commas that no bracket is around."""
    depth, found = 0, [""]
    for sign in actions:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [action.strip() for action in found]


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
