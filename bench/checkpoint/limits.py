"""Upper limit of throughput: bytes over bare sockets to a sink that stores nothing."""

import resource
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.checkpoint.sink import Sink

PIECE = 1 << 20
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Best throughput of a few tries."""

    save_gib_s: float
    load_gib_s: float
    cpu_s_per_gib: float  # for sending


def raw(sink: Sink, *, mib: int, streams: int, tls: bool, tries: int = 3) -> Raw:
    """Measure sending and fetching ``mib`` MiB over ``streams`` concurrent connections."""
    nbytes = mib * MIB // streams
    saves, loads, cpu = [], [], []
    with ThreadPoolExecutor(streams) as pool:
        ends = [_connected(sink, tls=tls) for _ in range(streams)]
        for _ in range(tries):
            busy = _cpu()
            saves.append(_timed(pool, ends, lambda end: _send(end, nbytes)))
            cpu.append(_cpu() - busy)
            loads.append(_timed(pool, ends, lambda end: _fetch(end, nbytes)))
        for end in ends:
            end.close()
    size = nbytes * streams / GIB
    return Raw(
        save_gib_s=size / min(saves),
        load_gib_s=size / min(loads),
        cpu_s_per_gib=min(cpu) / size,
    )


def _timed(
    pool: ThreadPoolExecutor, ends: list[socket.socket], act: Callable[[socket.socket], None]
) -> float:
    start = time.perf_counter()
    list(pool.map(act, ends))
    return time.perf_counter() - start


def _connected(sink: Sink, *, tls: bool) -> socket.socket:
    port = sink.raw_tls if tls else sink.raw
    end = socket.create_connection(("127.0.0.1", port), timeout=120)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return end
    trusted = ssl.create_default_context(cafile=str(sink.authority))
    return trusted.wrap_socket(end, server_hostname="localhost")


def _send(end: socket.socket, size: int) -> None:
    piece = memoryview(bytes(PIECE))
    end.sendall(b"S" + size.to_bytes(8, "little"))
    for at in range(0, size, PIECE):
        end.sendall(piece[: min(PIECE, size - at)])
    if end.recv(1) != b"k":
        raise ConnectionError("the sink did not take all of it")


def _fetch(end: socket.socket, size: int) -> None:
    scratch = memoryview(bytearray(PIECE))
    end.sendall(b"R" + size.to_bytes(8, "little"))
    while size:
        received = end.recv_into(scratch[: min(PIECE, size)])
        if not received:
            raise ConnectionError("the sink went away")
        size -= received


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
