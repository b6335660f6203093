"""torchrun for one node: `python -m trainer.process.rendezvous`, with torchrun's arguments.

Two things differ from torch's. The store, which has no password, listens on the node's own address
only. And neither torchrun nor a rank can open a TCP connection except to ports where ranks listen:
not to the metadata service, which would give them the machine's identity, nor to the internet
(Linux 6.7 and later; `trainer/process/landlock.py`).
"""

import ctypes
import errno
import logging
import socket
import sys
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.run import get_args_parser, run

from trainer.process.landlock import restrict_connect_ports

BACKEND = "own-address"
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # for who listens and names no port
_TIMEOUT_SECONDS = 600  # torch's default, for all nodes to join

log = logging.getLogger(__name__)


class OwnAddress(StaticTCPRendezvous):  # type: ignore[misc] # torch is untyped here
    """torch's static rendezvous, with a store that listens on ``master_addr`` alone."""

    def get_backend(self) -> str:
        """Return the backend's name."""
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        """Create the store on rank 0; torch's own method creates the clients."""
        if self.rank == 0 and not self._store:  # type: ignore[has-type] # as torch's own does
            self._store = TCPStore(
                self.master_addr,
                self.master_port,
                self.world_size,
                is_master=True,
                timeout=self.timeout,
                multi_tenant=True,
                master_listen_fd=_listen(self.master_addr, self.master_port),
            )
        return super().next_rendezvous()


def main() -> None:
    """Restrict the ports, then run torchrun."""
    rendezvous_handler_registry.register(BACKEND, _make)
    arguments = get_args_parser().parse_args()
    _close_ports(parse_rendezvous_endpoint(arguments.rdzv_endpoint, -1)[1])
    run(arguments)


def _make(parameters: RendezvousParameters) -> OwnAddress:
    address, port = parse_rendezvous_endpoint(parameters.endpoint, -1)
    rank = int(parameters.config["rank"])
    return OwnAddress(
        address, port, rank, parameters.max_nodes, parameters.run_id, _TIMEOUT_SECONDS
    )


def _listen(address: str, port: int) -> int:
    """Return a listening socket; the error's name is searched for in the log."""
    try:
        return socket.create_server((address, port)).detach()
    except OSError as e:
        raise OSError(e.errno, f"{errno.errorcode[e.errno or 0]}: {address}:{port}") from e


def _close_ports(store: int) -> None:
    if sys.platform != "linux":
        return
    first, last = map(int, _PORTS.read_text().split())
    if not restrict_connect_ports(
        ctypes.CDLL(None, use_errno=True), {store, *range(first, last + 1)}
    ):
        log.info("ports.open reason=no Landlock of Linux 6.7")


if __name__ == "__main__":
    main()
