"""Restrict a process, and all that it starts: files, ports, signals (Landlock).

Linux 5.13 and later; what a kernel is too old for is left out, files never. A process that was
restricted also cannot read the memory or the environment of one that was not.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # system calls, the same on every machine
_NO_NEW_PRIVILEGES = 38  # of prctl; Landlock wants it
_ASK_VERSION = 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# Bits of the accesses to files that a version knows: read, write, make, remove, run; then to move
# between folders, to truncate, to control devices.
_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_BIND, _CONNECT = 1 << 0, 1 << 1
_NET_SINCE = 4
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1  # of processes that were not restricted with it
_SCOPES_SINCE = 6
_PATH_BENEATH, _PORT = 1, 2  # types of rules


def landlock_version(libc: ctypes.CDLL) -> int:
    """Return the kernel's version of Landlock, 0 for none."""
    return max(int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION)), 0)


def restrict_to_read_only(libc: ctypes.CDLL, paths: Iterable[Path]) -> None:
    """Restrict this process to reading these files and folders.

    No TCP from version 4 on; no abstract sockets of others and no signals to them from 6 on. Raises
    OSError if files cannot be restricted.
    """
    version = landlock_version(libc)
    files = (1 << _FILE_BITS[min(max(version, 1), 5)]) - 1
    net = _BIND | _CONNECT if version >= _NET_SINCE else 0
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if version >= _SCOPES_SINCE else 0
    ruleset = _create(libc, files, net, scopes)
    try:
        for path in paths:
            _allow(libc, ruleset, path)
        _restrict(libc, ruleset)
    finally:
        os.close(ruleset)


def restrict_connect_ports(libc: ctypes.CDLL, ports: Iterable[int]) -> bool:
    """Restrict TCP connections to these ports; return False if the kernel cannot."""
    if landlock_version(libc) < _NET_SINCE:
        return False
    ruleset = _create(libc, 0, _CONNECT, 0)
    try:
        for port in ports:
            if libc.syscall(_ADD_RULE, ruleset, _PORT, struct.pack("=QQ", _CONNECT, port), 0) != 0:
                raise OSError(ctypes.get_errno(), f"port {port} could not be left open (Landlock)")
        _restrict(libc, ruleset)
    finally:
        os.close(ruleset)
    return True


def _create(libc: ctypes.CDLL, files: int, net: int, scopes: int) -> int:
    attributes = struct.pack("QQQ", files, net, scopes)
    ruleset = int(libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "this kernel has no Landlock; Linux 5.13 and later do")
    return ruleset


def _restrict(libc: ctypes.CDLL, ruleset: int) -> None:
    if libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "new privileges could not be given up (prctl)")
    if libc.syscall(_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "the process could not be restricted (Landlock)")


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path) -> None:
    """Add a rule; a path that does not exist needs none."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rights = _READ_FILE | _READ_FOLDER if path.is_dir() else _READ_FILE
    rule = struct.pack("=Qi", rights, fd)
    try:
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "not allowed to be read (Landlock)", str(path))
    finally:
        os.close(fd)
