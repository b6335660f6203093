"""What the code of a python grader tries in order to get out: refused before the kernel looks.

One process tries many. A refusal is EPERM or ENOSYS: arguments that the kernel did look at would
give another error, or success.
"""

import ctypes
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.nodes.supervised import ROOT
from trainer.graders.answer import Grade, ModelAnswer
from trainer.graders.sandbox.process import Sandbox
from trainer.graders.sandbox.seccomp import MACHINES
from trainer.process.landlock import landlock_version

# Calls that are refused whatever their arguments: number on x86_64, on aarch64 (-1: none).
REFUSED = """
fork 57 -1, clone3 435 435, execve 59 221, execveat 322 281, unshare 272 97, setns 308 268,
setsid 112 157, setpgid 109 154, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424 424,
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
process_mrelease 448 448, kcmp 312 272, perf_event_open 298 241, setpriority 141 140,
ioprio_set 251 30, sched_setaffinity 203 122, sched_setattr 314 274, sched_setscheduler 144 119,
migrate_pages 256 238, move_pages 279 239, get_robust_list 274 100, getpgid 121 155,
flock 73 32, inotify_init1 294 26, inotify_add_watch 254 27, fanotify_init 300 262,
timer_create 222 107, signalfd4 289 74, shmget 29 194, shmat 30 196, shmctl 31 195,
shmdt 67 197, msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, semget 64 190,
semop 65 193, semctl 66 191, mq_open 240 180, mq_notify 244 184, memfd_create 319 279,
socketpair 53 199, connect 42 203, bind 49 200, sendto 44 206, sendmsg 46 211, recvmsg 47 212,
pipe2 293 59, bpf 321 280, keyctl 250 219, add_key 248 217, request_key 249 218,
io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, io_setup 206 0,
userfaultfd 323 282, modify_ldt 154 -1, iopl 172 -1, personality 135 92, seccomp 317 277,
landlock_create_ruleset 444 444, vmsplice 278 75, splice 275 76, syslog 103 116, setuid 105 146,
setgroups 116 159, capset 126 91, openat2 437 437, mkdirat 258 34, mknodat 259 33,
symlinkat 266 36, linkat 265 37, unlinkat 263 35, renameat2 316 276, ftruncate 77 46,
fchmodat 268 53, fchownat 260 54, utimensat 280 88, setxattr 188 5, copy_file_range 326 285,
sendfile 40 71, pwrite64 18 68, chdir 80 49, chroot 161 51, mount 165 40, move_mount 429 429,
open_by_handle_at 304 265
"""
# Calls that are refused with these arguments, by what they would do; {ppid} is the trainer.
CALLS: dict[str, tuple[int, int, str]] = {
    "clone": (56, 220, "17, 0, 0, 0, 0"),
    "kill": (62, 129, "{ppid}, 0"),
    "prlimit64 of the trainer": (302, 261, "{ppid}, 7, 0, 0"),
    "fcntl F_SETOWN": (72, 25, "4, 8, {ppid}"),
    "fcntl F_SETOWN of a group": (72, 25, "4, 8, -{ppid}"),
    "fcntl F_SETOWN_EX": (72, 25, "4, 15, 0"),
    "fcntl F_SETSIG": (72, 25, "4, 10, 9"),
    "fcntl F_SETFL O_ASYNC": (72, 25, "4, 4, 0o20000"),
    "fcntl F_SETLEASE": (72, 25, "4, 1024, 0"),
    "fcntl F_NOTIFY": (72, 25, "4, 1026, 1"),
    "fcntl F_SETLK": (72, 25, "4, 6, 0"),
    "fcntl F_OFD_SETLK": (72, 25, "4, 37, 0"),
    "fcntl F_SETPIPE_SZ": (72, 25, "4, 1031, 1048576"),
    "fcntl with a long command": (72, 25, "4, 0x100000008, {ppid}"),
    "open O_ASYNC": (257, 56, "-100, b'/dev/null', 0o20000, 0"),
    "ioctl FIOASYNC": (16, 29, "4, 0x5452, 0"),
    "ioctl TIOCSTI": (16, 29, "0, 0x5412, 0"),
    "socket": (41, 198, "1, 1, 0"),
    "prctl PR_SET_PDEATHSIG": (157, 167, "1, 0, 0, 0, 0"),
    "prctl PR_SET_PTRACER": (157, 167, "0x59616d61, -1, 0, 0, 0"),
    "open O_RDWR": (257, 56, "-100, b'/dev/null', 2, 0"),
    "open O_CREAT": (257, 56, "-100, b'x', 0o100, 0o600"),
    "socket as the x32 ABI has it": (0x40000000 + 41, 0x40000000 + 198, "2, 1, 0"),
    "a call newer than the list": (462, 462, "0, 0, 0"),
    **{
        name: (int(x86), int(arm), "0, 0, 0, 0, 0, 0")
        for name, x86, arm in map(str.split, REFUSED.split(","))
    },
}
TRIED = """
import ctypes, errno, os
libc, worked = ctypes.CDLL(None, use_errno=True), []
for name, number, arguments in {calls}:
    ctypes.set_errno(0)
    arguments = eval("(" + arguments.format(ppid=os.getppid()) + ",)" if arguments else "()")
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    done, code = libc.syscall(ctypes.c_long(number), *longs), ctypes.get_errno()
    if done != -1 or code not in (errno.EPERM, errno.ENOSYS, errno.ENOTTY):
        worked.append((name, done, code))
assert not worked, worked
return 1
"""
# Files and folders that Landlock closes; {ppid} is the trainer.
CLOSED = [
    *(f"/proc/{{ppid}}/{name}" for name in ("environ", "mem", "maps", "cmdline", "status", "auxv")),
    *("/proc/self/environ", "/proc/self/mem", "/proc/self/maps", "/proc/meminfo", "/proc/version"),
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/etc/passwd", "/etc/hostname"),
    *("/dev/shm", "/tmp", "/proc", "/sys", "/etc", "/root", "/run", "/var", "/dev"),
    *("/proc/{ppid}/root", "/proc/{ppid}/cwd", "/proc/{ppid}/fd", "/proc/{ppid}/task"),
]
OPENED = """
import os
opened = []
for path in {paths}:
    path = path.format(ppid=os.getppid())
    try:
        os.read(os.open(path, os.O_RDONLY), 1) if not os.path.isdir(path) else os.listdir(path)
        opened.append(path)
    except (PermissionError, FileNotFoundError):
        pass
for link in ("exe", "cwd", "root", "fd/0"):
    try:
        opened.append(os.readlink(f"/proc/{{os.getppid()}}/{{link}}"))
    except OSError:
        pass
assert not opened, opened
return 1
"""
# To have SIGIO sent to the trainer whenever its own pipe has something to read.
SIGNALLED = """
import fcntl, os
for fd in range(10):
    for change in ((fcntl.F_SETSIG, 9), (fcntl.F_SETOWN, os.getppid()), (fcntl.F_SETFL, 0o20000)):
        try:
            fcntl.fcntl(fd, *change)
        except OSError:
            pass
return 1
"""


@pytest.fixture
def stand(tmp_path: Path) -> Path:
    return tmp_path / "stand"


def test_no_way_around_the_list_of_system_calls_is_open(stand: Path) -> None:
    column = MACHINES[os.uname().machine][1]
    tables = [(name, call[:2], call[2]) for name, call in CALLS.items()]
    calls = [(name, number[column], names) for name, number, names in tables if number[column] >= 0]

    assert len(calls) > 100
    assert graded(stand, TRIED.format(calls=calls)) == [Grade(1.0)]


def test_no_file_of_other_processes_or_of_the_machine_is_open(stand: Path) -> None:
    assert graded(stand, OPENED.format(paths=CLOSED)) == [Grade(1.0)]


def test_the_trainer_is_not_killed_by_a_signal_that_the_kernel_sends(stand: Path) -> None:
    """Its own pipes did it: F_SETOWN names whom the kernel signals when there is something."""
    program = f"""
import pathlib
from tests.integration.graders import test_grader_escapes as here
print(here.graded(pathlib.Path({str(stand)!r}), here.SIGNALLED, answer_count=3))
"""
    assert _said(program) == str([Grade(1.0)] * 3)


def test_what_graders_are_written_with_still_works(stand: Path) -> None:
    body = """
import collections, ctypes, datetime, decimal, difflib, fractions, functools, hashlib, itertools
import json, math, random, re, statistics, string, sys, time, traceback, unicodedata, uuid, zoneinfo
import numpy, rapidfuzz, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001)
time.sleep(0.01)
assert numpy.linalg.inv(numpy.eye(50) * 2)[0, 0] == 0.5 and numpy.random.default_rng(1).random()
assert re.sub("a+", "b", "caat") == "cbt" and hashlib.sha256(b"x").hexdigest()[:2] == "2d"
assert rapidfuzz.fuzz.ratio("ab", "ab") == 100 and uuid.uuid4() and time.time() > 0
assert datetime.datetime.now(zoneinfo.ZoneInfo("UTC")) and open(json.__file__).read()
return 1
"""
    assert graded(stand, body) == [Grade(1.0)]


@pytest.mark.parametrize(("mode", "readable"), [(0o755, True), (0o700, False)])
def test_root_is_left_where_others_can_read_python(
    tmp_path: Path, mode: int, readable: bool
) -> None:
    """The trainer's image runs as an ordinary user, who cannot be another one."""
    folder = tmp_path / "python"
    folder.mkdir()
    folder.chmod(mode)
    program = f"""
import os, pathlib
from trainer.graders.sandbox.restrictions import leave_root
leave_root([pathlib.Path({str(folder)!r})])
print(os.getuid(), os.getgid())
"""
    own_ids = (os.getuid(), os.getgid())
    all_readable = all(parent.stat().st_mode & 1 for parent in folder.parents)

    output = _said(program)

    assert output == (
        "65534 65534"
        if own_ids[0] == 0 and readable and all_readable
        else f"{own_ids[0]} {own_ids[1]}"
    )


def test_landlock_closes_what_the_kernel_is_new_enough_for(tmp_path: Path) -> None:
    """Without the list of calls: were there a hole in it, this would still hold."""
    folder_path = tmp_path / "cut"
    folder_path.touch()
    name = f"rk-{tmp_path.name}-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as unix_socket,
        socket.create_server(("127.0.0.1", 0)) as web,
    ):
        unix_socket.bind(f"\0{name}")
        unix_socket.listen()
        output = _said(
            f"""
import ctypes, os, pathlib, socket
from trainer.process.landlock import restrict_to_read_only
restrict_to_read_only(ctypes.CDLL(None, use_errno=True), [pathlib.Path("/usr")])
def tried(what, *arguments):
    try:
        what(*arguments)
        return "open"
    except PermissionError:
        return "closed"
print(tried(open, "/etc/passwd"), tried(open, "x", "w"), tried(os.truncate, __file__, 0),
      tried(socket.create_connection, ("127.0.0.1", {web.getsockname()[1]})),
      tried(socket.socket(socket.AF_UNIX).connect, chr(0) + "{name}"),
      tried(os.kill, os.getppid(), 0))
""".replace("__file__", repr(str(folder_path)))
        )
    abi_version = landlock_version(ctypes.CDLL(None))
    since = (1, 1, 3, 4, 6, 6)

    assert output.split() == ["closed" if abi_version >= first else "open" for first in since]


def _said(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def graded(stand: Path, body: str, answer_count: int = 1) -> list[Grade]:
    """Grade empty answers by the body of a `grade`, all in one process."""
    source = "def grade(sample, item):\n" + textwrap.indent(body, "    ")
    sandbox = Sandbox(source, stand, 60.0)
    try:
        return [sandbox.grade(ModelAnswer("", {})) for _ in range(answer_count)]
    finally:
        sandbox.close()
