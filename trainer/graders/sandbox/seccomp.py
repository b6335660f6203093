"""Filter the system calls of a python grader's process (seccomp, BPF).

`Documentation/userspace-api/seccomp_filter.rst` of Linux. The filter program examines machine,
number and arguments of each call. It cannot be removed.
"""

import ctypes
import struct
from collections.abc import Sequence

from trainer.graders.sandbox.syscalls import (
    ALLOWED,
    ANSWERS,
    ENOSYS,
    EPERM,
    FIRST_UNKNOWN,
    WITH_VALUE,
    WITHOUT_BITS,
)

# AUDIT_ARCH_* of the kernel, and the column of the table of system calls.
MACHINES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; 8 bytes an argument
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_SET_SECCOMP, _MODE_FILTER = 22, 2  # of prctl


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_calls(libc: ctypes.CDLL, machine: str) -> None:
    """Allow this process only the calls in `syscalls.py` from now on; raise OSError if it fails."""
    code = filter_program(machine)
    program = _Program(len(code) // 8, code)
    if libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel does not filter system calls (seccomp)")


def filter_program(machine: str) -> bytes:
    """Return the filter for ``machine`` (as `uname -m`), 8 bytes an instruction."""
    if machine not in MACHINES:
        raise OSError(f"no list of system calls for {machine!r}; known: {', '.join(MACHINES)}")
    audit, column = MACHINES[machine]
    code = [_op(_LOAD, _MACHINE_AT), _op(_JUMP_EQUAL, audit, 1, 0), _op(_RETURN, _KILL)]
    code += [_op(_LOAD, _NUMBER_AT), _op(_JUMP_FROM, FIRST_UNKNOWN, 0, 1)]
    code.append(_op(_RETURN, _REFUSE | ENOSYS))
    for calls in ALLOWED.values():
        for numbers in calls.values():
            code += _if_called(numbers[column], [_op(_RETURN, _ALLOW)])
    for numbers, argument, bits in WITHOUT_BITS.values():
        code += _if_called(numbers[column], _without_bits(argument, bits))
    for numbers, argument, values in WITH_VALUE.values():
        code += _if_called(numbers[column], _with_value(argument, values))
    for numbers, answer in ANSWERS.values():
        code += _if_called(numbers[column], [_op(_RETURN, _REFUSE | answer)])
    return b"".join([*code, _op(_RETURN, _REFUSE | EPERM)])


def _if_called(number: int, then: list[bytes]) -> list[bytes]:
    """Return code that runs ``then``, which returns, for the call; -1: no such call."""
    return [_op(_JUMP_EQUAL, number, 0, len(then)), *then] if number >= 0 else []


def _without_bits(argument: int, bits: int) -> list[bytes]:
    """Refuse the call if any of the bits is set in the argument's lower half."""
    return [
        _op(_LOAD, _ARGUMENTS_AT + 8 * argument),
        _op(_JUMP_BITS, bits, 0, 1),
        _op(_RETURN, _REFUSE | EPERM),
        _op(_RETURN, _ALLOW),
    ]


def _with_value(argument: int, values: Sequence[int]) -> list[bytes]:
    """Allow the call if the argument's lower half, all that the kernel reads, is in ``values``."""
    checks = [_op(_JUMP_EQUAL, value, jump, 0) for jump, value in enumerate(values[::-1], 1)]
    return [
        _op(_LOAD, _ARGUMENTS_AT + 8 * argument),
        *checks[::-1],
        _op(_RETURN, _REFUSE | EPERM),
        _op(_RETURN, _ALLOW),
    ]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Pack a struct sock_filter; jumps count skipped instructions."""
    return struct.pack("HBBI", code, if_true, if_false, value)
