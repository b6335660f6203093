"""No statement both locks rows and writes them, because PostgreSQL may then deadlock on one row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = re.compile(r"\bfor (?:no key )?update\b")
WRITES = re.compile(r"(?<!do )(?<!key )(?<!for )\bupdate (\w+|\{\w+\})")
# Rows to which nobody refers, or only who holds them already.
APART = {
    "generations": "no table refers to them",
    "ledger": "no table refers to it",
}


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _both(source: str) -> set[str]:
    """Return the tables of which one statement locks rows and writes them."""
    statements = (s for s in _strings(ast.parse(source)) if LOCKS.search(s))
    return {table for s in statements for table in WRITES.findall(s)}


def test_no_statement_locks_rows_and_writes_them_where_others_refer_to_them() -> None:
    service = sorted((ROOT / "service").rglob("*.py"))
    tables_by_file = {str(path.relative_to(ROOT)): _both(path.read_text()) for path in service}

    assert set().union(*tables_by_file.values()) == APART.keys()


def test_a_statement_that_does_both_is_found() -> None:
    does = "'''with m as (select id from jobs for no key update) update jobs j set a = 1'''"
    only_locks = "'select id from jobs order by id for update'"
    upserts = "'insert into a values (1) on conflict (id) do update set a = 1'"

    assert [_both(s) for s in (does, only_locks, upserts)] == [{"jobs"}, set(), set()]
