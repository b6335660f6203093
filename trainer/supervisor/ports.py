"""A port that is free on this node's address, to be rank 0's rendezvous should it come to that."""

import socket


def free_port(address: str, last: int = 0) -> int:
    """Return ``last`` while it is still free, else another free port of ``address``."""
    for port in (last, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {address}: is that this machine's own address?")
