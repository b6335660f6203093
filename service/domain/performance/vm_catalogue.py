"""List the VM sizes that Rekindle knows, with their GPUs, memory and links.

Facts from Microsoft's pages on GPU-accelerated VM sizes (ND A100 v4, NDm A100 v4, ND H100 v5, ND
H200 v5, NC A100 v4, NCads H100 v5) and NVIDIA's data sheets of A100 (40 GB SXM 1,555 GB/s, 80 GB
PCIe 1,935, 80 GB SXM 2,039; 312 TFLOPS), H100 (SXM 3,350 GB/s and 989 TFLOPS, NVL 3,900 and 835)
and H200 (SXM 4,800 GB/s and 989 TFLOPS): dense bf16. Prices change, so they come from a
PriceSource.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sku:
    """One VM size."""

    vm_size: str
    gpus: int
    gpu: str
    gpu_memory_gib: int  # of one GPU
    memory_gbytes: int  # per second, between one GPU and its memory
    vcpus: int
    ram_gib: int
    local_disk_gib: int
    ethernet_gbps: int  # of the whole VM, and all that reaches Blob Storage
    infiniband_gbps: int  # of one GPU's adapter; 0 = none
    nvlink_gbytes: int  # per second and GPU between the GPUs of one VM
    bf16_tflops: float  # of one GPU, dense

    @property
    def family(self) -> str:
        """Return the GPU generation, such as "A100"."""
        return self.gpu.split("-")[0]

    @property
    def infiniband(self) -> bool:
        """Return whether nodes of one scale set reach each other by RDMA."""
        return self.infiniband_gbps > 0


_A100_TFLOPS = 312.0
_H100_TFLOPS = 989.0
_H100_NVL_TFLOPS = 835.0

# nvlink_gbytes is the NCCL bus bandwidth below which Azure's own health checks call a node bad
# (431 on H200: Azure/azhpc-images, components/install_health_checks.sh);
# over four PCIe A100 only pairs are bridged, so the slowest link counts.
SKUS: tuple[Sku, ...] = (
    Sku(
        vm_size="Standard_ND96amsr_A100_v4",
        gpus=8,
        gpu="A100-SXM4-80GB",
        gpu_memory_gib=80,
        memory_gbytes=2039,
        vcpus=96,
        ram_gib=1900,
        local_disk_gib=6400,
        ethernet_gbps=24,
        infiniband_gbps=200,
        nvlink_gbytes=228,
        bf16_tflops=_A100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_ND96asr_v4",
        gpus=8,
        gpu="A100-SXM4-40GB",
        gpu_memory_gib=40,
        memory_gbytes=1555,
        vcpus=96,
        ram_gib=900,
        local_disk_gib=6000,
        ethernet_gbps=24,
        infiniband_gbps=200,
        nvlink_gbytes=228,
        bf16_tflops=_A100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_ND96isr_H100_v5",
        gpus=8,
        gpu="H100-SXM5-80GB",
        gpu_memory_gib=80,
        memory_gbytes=3350,
        vcpus=96,
        ram_gib=1900,
        local_disk_gib=28672,
        ethernet_gbps=80,
        infiniband_gbps=400,
        nvlink_gbytes=460,
        bf16_tflops=_H100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_ND96isr_H200_v5",
        gpus=8,
        gpu="H200-SXM5-141GB",
        gpu_memory_gib=141,
        memory_gbytes=4800,
        vcpus=96,
        ram_gib=1850,
        local_disk_gib=28672,
        ethernet_gbps=80,
        infiniband_gbps=400,
        nvlink_gbytes=431,
        bf16_tflops=_H100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_NC24ads_A100_v4",
        gpus=1,
        gpu="A100-PCIe-80GB",
        gpu_memory_gib=80,
        memory_gbytes=1935,
        vcpus=24,
        ram_gib=220,
        local_disk_gib=64,
        ethernet_gbps=20,
        infiniband_gbps=0,
        nvlink_gbytes=193,
        bf16_tflops=_A100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_NC48ads_A100_v4",
        gpus=2,
        gpu="A100-PCIe-80GB",
        gpu_memory_gib=80,
        memory_gbytes=1935,
        vcpus=48,
        ram_gib=440,
        local_disk_gib=128,
        ethernet_gbps=40,
        infiniband_gbps=0,
        nvlink_gbytes=193,
        bf16_tflops=_A100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_NC96ads_A100_v4",
        gpus=4,
        gpu="A100-PCIe-80GB",
        gpu_memory_gib=80,
        memory_gbytes=1935,
        vcpus=96,
        ram_gib=880,
        local_disk_gib=256,
        ethernet_gbps=80,
        infiniband_gbps=0,
        nvlink_gbytes=25,
        bf16_tflops=_A100_TFLOPS,
    ),
    Sku(
        vm_size="Standard_NC40ads_H100_v5",
        gpus=1,
        gpu="H100-NVL-94GB",
        gpu_memory_gib=94,
        memory_gbytes=3900,
        vcpus=40,
        ram_gib=320,
        local_disk_gib=3576,
        ethernet_gbps=40,
        infiniband_gbps=0,
        nvlink_gbytes=208,
        bf16_tflops=_H100_NVL_TFLOPS,
    ),
    Sku(
        vm_size="Standard_NC80adis_H100_v5",
        gpus=2,
        gpu="H100-NVL-94GB",
        gpu_memory_gib=94,
        memory_gbytes=3900,
        vcpus=80,
        ram_gib=640,
        local_disk_gib=7152,
        ethernet_gbps=80,
        infiniband_gbps=0,
        nvlink_gbytes=208,
        bf16_tflops=_H100_NVL_TFLOPS,
    ),
)

_BY_NAME = {sku.vm_size.lower(): sku for sku in SKUS}


def lookup(vm_size: str) -> Sku | None:
    """Return the VM size of this name, ignoring case as Azure does, or None."""
    return _BY_NAME.get(vm_size.lower())
