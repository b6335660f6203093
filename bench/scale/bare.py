"""Baseline: the write of a heartbeat in PostgreSQL without the service, by pgbench."""

import re
import tempfile
from pathlib import Path

from rekindle.local import postgres

DATABASE = "bare"
CLIENTS = 16
_TABLE = (
    "create table nodes (id text primary key, heartbeat_seq int not null default 0,"
    " heard_at timestamptz not null default now(), step int not null default 0,"
    " phase text not null default 'running', spans jsonb not null default '[]')"
    " with (fillfactor=70)"
)
_ROWS = "insert into nodes (id) select 'node-' || n from generate_series(1, {nodes}) n"
_WRITE = """\\set n random(1, {nodes})
update nodes set heartbeat_seq = heartbeat_seq + 1, heard_at = now(), step = step + 1
where id = 'node-' || :n;
"""


def commits(data: Path, nodes: int, seconds: float) -> float:
    """Return the durable transactions per second of ``seconds`` seconds of pgbench."""
    postgres.create_database(data, DATABASE)
    _sql(data, _TABLE)
    _sql(data, _ROWS.format(nodes=nodes))
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_WRITE.format(nodes=nodes))
        script.flush()
        Path(script.name).chmod(0o644)
        where = ["-h", str(postgres.socket_dir(data)), "-U", postgres.SUPERUSER]
        load = ["-n", "-M", "prepared", "-c", str(CLIENTS), "-T", str(max(int(seconds), 1))]
        output = postgres.run_program(
            "pgbench", *where, *load, "-f", script.name, DATABASE, cwd=data
        )
    match = re.search(r"tps = ([\d.]+)", output)
    assert match, output
    return float(match[1])


def _sql(data: Path, command: str) -> None:
    flags = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", postgres.SUPERUSER, "-d", DATABASE]
    postgres.run_program(
        "psql", "-h", str(postgres.socket_dir(data)), *flags, "-c", command, cwd=data
    )
