"""What nvidia-smi and the driver say of broken GPUs, and the sentence that comes of each."""

import re

import pytest

from trainer.contract import ExpectedHardware, GpuErrors, GpuLoad
from trainer.supervisor.machine.gpu_report import (
    errors_of_gpus,
    faults_of_gpus,
    faults_of_nvlink,
    faults_of_xids,
    loads_of_gpus,
)

H100 = ExpectedHardware(gpus=2, gpu_memory_gib=80, nvlink_gbytes=460, infiniband_gbps=400)

# The members and words of `nvidia-smi -q -x` (nvsmi_device_v12.dtd, driver 550), most left out.
GPU = """
  <gpu id="00000001:00:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <gpu_recovery_action>None</gpu_recovery_action>
    <fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage>
    <ecc_errors>
      <volatile>
        <sram_correctable>0</sram_correctable>
        <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
        <dram_correctable>0</dram_correctable>
        <dram_uncorrectable>0</dram_uncorrectable>
      </volatile>
      <aggregate>
        <sram_correctable>17</sram_correctable>
        <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
        <dram_correctable>12</dram_correctable>
        <dram_uncorrectable>3</dram_uncorrectable>
        <sram_threshold_exceeded>No</sram_threshold_exceeded>
      </aggregate>
    </ecc_errors>
    <remapped_rows>
      <remapped_row_corr>0</remapped_row_corr>
      <remapped_row_unc>3</remapped_row_unc>
      <remapped_row_pending>No</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
  </gpu>"""
OLD_GPU = """
  <gpu id="00000002:00:00.0">
    <fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
    <ecc_errors>
      <volatile><sram_uncorrectable>N/A</sram_uncorrectable></volatile>
    </ecc_errors>
    <remapped_rows>N/A</remapped_rows>
  </gpu>"""


def report(*gpus: str) -> str:
    """Return a report as nvidia-smi frames it."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log><attached_gpus>{len(gpus)}</attached_gpus>{''.join(gpus)}"
        "</nvidia_smi_log>"
    )


def with_member(name: str, value: str) -> str:
    """Return a report in which the second GPU's last member ``name`` has this value."""
    head, _, tail = GPU.rpartition(f"<{name}>")
    broken = f"{head}<{name}>{value}<{tail.partition('<')[2]}"
    return report(GPU, broken)


def test_gpus_with_a_few_corrected_errors_and_rows_that_were_remapped_are_healthy() -> None:
    assert faults_of_gpus(report(GPU, OLD_GPU), H100) == []


@pytest.mark.parametrize(
    ("member", "value", "fault"),
    [
        ("remapped_row_pending", "Yes", ": a row of its memory waits to be remapped"),
        ("remapped_row_failure", "Yes", ": a row of its memory could not be remapped"),
        ("remapped_row_unc", "513", ": 513 rows of its memory were remapped, at most 512 may be"),
        ("sram_uncorrectable_secded", "2", ": 2 uncorrectable ECC errors in SRAM"),
        ("sram_correctable", "10001", ": 10001 corrected ECC errors in SRAM, at most 10000 may be"),
        ("dram_correctable", "20000001", ": 20000004 ECC errors in DRAM, at most 20000000 may be"),
        ("gpu_recovery_action", "Reset", " needs recovery by its driver's word: Reset"),
        ("total", "40536 MiB", " has 39.6 GiB of memory, the size has 80"),
    ],
)
def test_a_fault_names_the_gpu(member: str, value: str, fault: str) -> None:
    faults = faults_of_gpus(with_member(member, value), H100)

    assert faults == [f"GPU 1 (00000001:00:00.0){fault}"]


@pytest.mark.parametrize("memory", ["N/A", ""])
def test_a_gpu_that_does_not_tell_its_memory_is_not_judged_by_it(memory: str) -> None:
    assert faults_of_gpus(with_member("total", memory), H100) == []


def test_a_missing_gpu_is_told_first() -> None:
    faults = faults_of_gpus(report(GPU.replace("pending>No", "pending>Yes")), H100)

    assert faults[0] == "1 GPUs answer, the VM size has 2"
    assert len(faults) == 2


@pytest.mark.parametrize("garbage", ["", "No devices were found", "<nvidia_smi_log><gpu>"])
def test_what_is_no_report_is_refused_and_not_taken_for_health(garbage: str) -> None:
    with pytest.raises(ValueError, match=re.escape("the report of nvidia-smi is no XML")):
        faults_of_gpus(garbage, H100)


def test_links_that_are_down_are_counted_for_each_gpu() -> None:
    report_text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n"
        "\t Link 1: <inactive>\n\t Link 2: <inactive>\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n"
        "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    )

    assert faults_of_nvlink(report_text) == [
        "GPU 0: 2 NVLink links are inactive",
        "GPU 2: 1 NVLink links are inactive",
    ]


def test_of_the_drivers_errors_only_those_of_the_hardware_count_and_each_once() -> None:
    xid_line = "NVRM: Xid (PCI:0001:00:00): 79, pid='<unknown>', GPU has fallen off the bus."
    log = (
        f"[   12.1] {xid_line}\n[   13.2] {xid_line}\n"
        "[ 14] NVRM: Xid (PCI:0002:00:00): 31, pid=7, MMU\n"
    )

    assert faults_of_xids(log) == ["the driver reported Xid 79 of the GPU at PCI:0001:00:00"]


def test_the_load_of_each_gpu_is_read_and_one_that_does_not_say_it_is_left_out() -> None:
    use = "<used>40780 MiB</used></fb_memory_usage><utilization><gpu_util>97 %</gpu_util>"
    busy = GPU.replace("<used>4 MiB</used></fb_memory_usage>", f"{use}</utilization>")
    mute = OLD_GPU.replace("81559 MiB", "N/A")

    assert loads_of_gpus(report(busy, mute)) == (GpuLoad(busy=0.97, memory=40780 / 81559),)
    assert loads_of_gpus("no report") == ()


@pytest.mark.parametrize(
    ("gpus", "errors"),
    [
        ((GPU, GPU), GpuErrors()),  # those of its life are not counted
        ((GPU.replace("secded>0", "secded>2", 1),), GpuErrors(uncorrected=2)),
        ((GPU.replace("parity>0", "parity>1", 1), OLD_GPU), GpuErrors(uncorrected=1)),
        (
            (GPU.replace("dram_uncorrectable>0", "dram_uncorrectable>4", 1),) * 2,
            GpuErrors(uncorrected=8),
        ),
        ((OLD_GPU.replace("N/A", "5", 1),), GpuErrors(uncorrected=5)),  # of an older driver
        ((GPU.replace("sram_correctable>0", "sram_correctable>3", 1),), GpuErrors(corrected=3)),
        (
            (GPU.replace("dram_correctable>0", "dram_correctable>9999999999", 1),),
            GpuErrors(corrected=2**31 - 1),
        ),
    ],
)
def test_ecc_errors_since_the_boot_are_counted_of_all_gpus(
    gpus: tuple[str, ...], errors: GpuErrors
) -> None:
    assert errors_of_gpus(report(*gpus), "") == errors


def test_xid_errors_are_counted_each_time_and_by_whether_the_hardware_is_broken() -> None:
    line = "NVRM: Xid (PCI:0001:00:00): {}, pid=7\n"
    log = "".join(line.format(number) for number in (79, 79, 31, 43, 48))

    assert errors_of_gpus("no report", log) == GpuErrors(fatal_xids=3, other_xids=2)
