"""Restrict a python grader's process before it runs user code.

The order matters: dropping capabilities clears the parent-death signal, and after the filter none
of these calls is allowed.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainer.graders.sandbox.seccomp import filter_calls
from trainer.process.landlock import restrict_to_read_only

MEMORY = 2 * 1024**3  # bytes of address space
CPU_SECONDS = 3600  # of one process; the parent replaces it well before
OPEN_FILES = 64
_READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null")
_READABLE_TOO = ("/dev/urandom", "/dev/zero")
_SET_DEATH_SIGNAL = 1  # of prctl
_NOBODY = 65534
_CAPABILITIES = 0x20080522  # version 3 of struct __user_cap_header_struct


def restrict_process(parent: int) -> None:
    """Apply all restrictions; raise OSError, with the reason, if any fails.

    ``parent`` is the process whose end ends this one (its thread, to be exact: PDEATHSIG).
    """
    if os.uname().sysname != "Linux":
        raise OSError("python graders need Linux, which alone can confine them")
    libc = ctypes.CDLL(None, use_errno=True)
    restrict_to_read_only(libc, _readable())
    leave_root(_python_paths())
    _limit()
    _drop_capabilities(libc)
    _prctl(libc, _SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    filter_calls(libc, os.uname().machine)


def _readable() -> Sequence[Path]:
    """Return the paths that stay readable: Python with its packages, and this package."""
    return [*_python_paths(), *map(Path, (*_READABLE, *_READABLE_TOO))]


def _python_paths() -> Sequence[Path]:
    return [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2]]


def leave_root(paths: Iterable[Path]) -> None:
    """Become the unprivileged user, if we are root and that user can read Python's files."""
    folders = {folder for path in paths for folder in (path, *path.parents)}
    if os.geteuid() != 0 or not all(folder.stat().st_mode & 0o1 for folder in folders):
        return
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _limit() -> None:
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (lower, lower))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop root's capabilities; harmless for other users."""
    header, none = struct.pack("Ii", _CAPABILITIES, 0), bytes(24)
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")
