"""The system calls that a python grader may make, with their numbers.

All others are refused. The numbers are those of Linux's `asm/unistd_64.h` (x86_64) and
`asm-generic/unistd.h` (aarch64); -1: the machine has no such call. Released numbers never change.
"""

EPERM, ENOTTY, ENOSYS = 1, 25, 38
FIRST_UNKNOWN = 448  # the same on both machines; calls from here on are newer than this list

# Reason -> calls. None of them touches another process, or changes a file.
ALLOWED: dict[str, dict[str, tuple[int, int]]] = {
    "reads and waits; writes to its own pipe": {
        "read": (0, 63),
        "write": (1, 64),
        "readv": (19, 65),
        "writev": (20, 66),
        "pread64": (17, 67),
        "lseek": (8, 62),
        "close": (3, 57),
        "close_range": (436, 436),
        "dup": (32, 23),
        "dup2": (33, -1),
        "dup3": (292, 24),
        "poll": (7, -1),
        "ppoll": (271, 73),
        "select": (23, -1),
        "pselect6": (270, 72),
    },
    "has memory": {
        "brk": (12, 214),
        "mmap": (9, 222),
        "munmap": (11, 215),
        "mremap": (25, 216),
        "mprotect": (10, 226),
        "madvise": (28, 233),
    },
    "has one thread": {
        "futex": (202, 98),
        "set_robust_list": (273, 99),
        "rseq": (334, 293),
        "sched_yield": (24, 124),
        "sched_getaffinity": (204, 123),
        "getcpu": (309, 168),
        "restart_syscall": (219, 128),
        "exit": (60, 93),
        "exit_group": (231, 94),
    },
    "handles its own signals": {
        "rt_sigaction": (13, 134),
        "rt_sigprocmask": (14, 135),
        "rt_sigreturn": (15, 139),
        "rt_sigpending": (127, 136),
        "sigaltstack": (131, 132),
        "alarm": (37, -1),
        "setitimer": (38, 103),
        "getitimer": (36, 102),
    },
    "knows the time, draws numbers": {
        "clock_gettime": (228, 113),
        "clock_getres": (229, 114),
        "clock_nanosleep": (230, 115),
        "nanosleep": (35, 101),
        "gettimeofday": (96, 169),
        "time": (201, -1),
        "times": (100, 153),
        "getrandom": (318, 278),
    },
    "looks for files": {
        "stat": (4, -1),
        "fstat": (5, 80),
        "lstat": (6, -1),
        "newfstatat": (262, 79),
        "statx": (332, 291),
        "access": (21, -1),
        "faccessat": (269, 48),
        "faccessat2": (439, 439),
        "readlink": (89, -1),
        "readlinkat": (267, 78),
        "getdents64": (217, 61),
        "getcwd": (79, 17),
        "statfs": (137, 43),
        "fstatfs": (138, 44),
    },
    "knows itself": {
        "getpid": (39, 172),
        "getppid": (110, 173),
        "gettid": (186, 178),
        "getuid": (102, 174),
        "geteuid": (107, 175),
        "getgid": (104, 176),
        "getegid": (108, 177),
        "getgroups": (115, 158),
        "uname": (63, 160),
        "sysinfo": (99, 179),
        "getrusage": (98, 165),
        "getrlimit": (97, 163),
    },
}

# Call -> numbers, argument, bits of it: allowed while none of them is set.
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_ASYNC = 0o20000  # O_ASYNC: signals when there is something to read
WITHOUT_BITS: dict[str, tuple[tuple[int, int], int, int]] = {
    "open": ((2, -1), 1, _WRITING | _ASYNC),
    "openat": ((257, 56), 2, _WRITING | _ASYNC),
    "prlimit64": ((302, 261), 0, 0xFFFFFFFF),  # of another process
}

# Call -> numbers, argument, values of it that are allowed. Not among them: F_SETOWN, F_SETSIG and
# O_ASYNC by F_SETFL, which have the kernel send signals to any process; locks and leases.
WITH_VALUE: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 1030)),  # F_DUPFD, GETFD, SETFD, GETFL, DUPFD_CLOEXEC
}

# What these answer instead of EPERM, so that Python and the C library take another way.
ANSWERS: dict[str, tuple[tuple[int, int], int]] = {
    "clone3": ((435, 435), ENOSYS),
    "openat2": ((437, 437), ENOSYS),
    "ioctl": ((16, 29), ENOTTY),
}
