"""Free TCP ports for the servers of benchmarks and tests.

They lie outside the kernel's range of ephemeral ports. So no client takes one by chance between
the check and the use.
"""

import random
import socket

FIRST, LAST = 12_000, 32_000  # Linux assigns ephemeral ports from 32768 on


def free(count: int = 1) -> int:
    """Return the first of ``count`` consecutive free ports."""
    while True:
        first = random.randrange(FIRST, LAST, count)  # noqa: S311 - no secret
        if all(_is_free(first + n) for n in range(count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
