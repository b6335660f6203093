"""The network settings of this node's ranks: the interface of its address, and NCCL by VM size.

By default gloo uses the interface that the host name resolves to, or loopback (torch,
ProcessGroupGloo.cpp, createDefaultDevice), and NCCL the first RDMA device that is up. Azure does
not promise that names resolve, nor that they differ between machines of a virtual network.
"""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

# Azure/azhpc-images names every InfiniBand device mlx5_ibN and every one of accelerated networking
# mlx5_anN (components/install_azure_persistent_rdma_naming.sh). NCCL_IB_HCA takes prefixes (NCCL
# user guide, environment variables). The other two: components/customizations/ndv4.sh and ndv5.sh,
# which leave them in /etc/nccl.conf at boot, maybe after this container has started.
_ND = {
    "NCCL_IB_HCA": "mlx5_ib",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
}
# azhpc-images, topology/: part of the image. setup_sku_customizations.sh assigns the sizes:
# which; H100 and H200 share one.
_ND_V4 = _ND | {"NCCL_TOPO_FILE": "/opt/microsoft/ndv4-topo.xml"}
_ND_V5 = _ND | {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}
# Microsoft's page on the NC sizes lists no InfiniBand; what NCCL would find is mlx5_an0, RoCE of
# accelerated networking, on which Azure offers no RDMA between machines.
_NC = {"NCCL_IB_DISABLE": "1"}
_NC_FOUR_A100 = _NC | {  # azhpc-images, components/customizations/ncv4.sh
    "NCCL_TOPO_FILE": "/opt/microsoft/ncv4-topo.xml",
    "NCCL_GRAPH_FILE": "/opt/microsoft/ncv4-graph.xml",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
}
BY_VM_SIZE: Mapping[str, Mapping[str, str]] = {
    "standard_nd96asr_v4": _ND_V4,
    "standard_nd96amsr_a100_v4": _ND_V4,
    "standard_nd96isr_h100_v5": _ND_V5,
    "standard_nd96isr_h200_v5": _ND_V5,
    "standard_nc24ads_a100_v4": _NC,
    "standard_nc48ads_a100_v4": _NC,
    "standard_nc96ads_a100_v4": _NC_FOUR_A100,
    "standard_nc40ads_h100_v5": _NC,
    "standard_nc80adis_h100_v5": _NC,
}
_RDMA = Path("/sys/class/infiniband")  # the kernel's list of RDMA devices
_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")  # without the file NCCL looks for itself


class NoInterfaceError(OSError):
    """No network interface of this machine has the node's address."""


def find_interface(address: str) -> str:
    """Return the name of the network interface with ``address``, such as eth0."""
    target = ipaddress.ip_address(address)
    if target.is_loopback:
        target = ipaddress.ip_address("127.0.0.1")  # its interface answers for 127.0.0.0/8
    for name, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == str(target) for candidate in addresses):
            return name
    raise NoInterfaceError(
        f"no network interface of this machine has the address {address}, by which the other"
        " machines know it; compare `ip address` with what the metadata service says"
    )


def nccl_settings(vm_size: str) -> dict[str, str]:
    """Return NCCL's settings of a VM size; only existing files. Unknown sizes: defaults."""
    chosen = {"NCCL_DEBUG": "WARN", **BY_VM_SIZE.get(vm_size.lower(), {})}
    return {n: v for n, v in chosen.items() if n not in _FILES or Path(v).is_file()}


def network_report(address: str, vm_size: str, rdma: Path = _RDMA) -> tuple[str, ...]:
    """Return the node's network settings, or their fault, as NAME=VALUE for the service.

    Includes the RDMA devices: where NCCL_IB_HCA matches none, NCCL uses TCP.
    """
    try:
        chosen = network_settings(address, vm_size)
    except NoInterfaceError as e:
        chosen = {"fault": str(e)}
    chosen["rdma_devices"] = ",".join(sorted(device.name for device in rdma.glob("*")))[:200]
    return tuple(f"{name}={value}" for name, value in chosen.items())


def network_settings(
    address: str, vm_size: str, job_settings: Sequence[str] = ()
) -> dict[str, str]:
    """Return the environment of every rank on this node.

    ``job_settings`` are a job's own NAME=VALUE. Raises NoInterfaceError.
    """
    interface = find_interface(address)
    own = dict(pair.split("=", 1) for pair in job_settings if pair.startswith("NCCL_"))
    return {
        **nccl_settings(vm_size),
        **own,
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",  # with "=" it is no prefix (NCCL user guide)
    }


def free_port(address: str, last: int = 0) -> int:
    """Return ``last`` while it is free, else another free port of ``address``.

    The ranks meet there if this node becomes rank 0.
    """
    for port in (last, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {address}: is that this machine's own address?")
