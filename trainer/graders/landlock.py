"""Which files a python grader's process may read (Landlock, Linux 5.13 and later).

Without it a process reads what its user may read, the environment of the trainer and of the
supervisor with it. With it, those processes in `/proc` are closed too.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # system calls, the same on every machine
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_ALL = (1 << 13) - 1  # every access that the first version knows: read, write, make, remove, run
_PATH_BENEATH = 1


def read_only(libc: ctypes.CDLL, paths: Iterable[Path]) -> None:
    """Let this process read those files and folders, and no others; raise OSError if it cannot."""
    asked = struct.pack("Q", _ALL)
    ruleset = libc.syscall(_CREATE, asked, ctypes.c_size_t(len(asked)), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "this kernel has no Landlock; Linux 5.13 and later do")
    try:
        for path in paths:
            _allow(libc, ruleset, path)
        if libc.syscall(_RESTRICT, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "files could not be closed to it (Landlock)")
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path) -> None:
    """Add a rule; a path that does not exist needs none."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rights = _READ_FILE | _READ_FOLDER if path.is_dir() else _READ_FILE
    rule = struct.pack("=Qi", rights, place)
    try:
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "not allowed to be read (Landlock)", str(path))
    finally:
        os.close(place)
