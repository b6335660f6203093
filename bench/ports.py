"""Free ports for servers of benchmarks and tests.

Outside the range from which the kernel gives ports to clients, so that none is taken by chance
between the look and the use.
"""

import random
import socket

FIRST, LAST = 12_000, 32_000  # Linux gives its clients 32768 and more


def free(count: int = 1) -> int:
    """The first of ``count`` neighbouring ports that nobody holds."""
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
