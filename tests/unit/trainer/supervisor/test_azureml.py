"""A node of a job in Azure ML: its environment, where saves lie; the health check of a node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.contract import PROTOCOL, NodeConfig
from trainer.supervisor.machine import liveness
from trainer.supervisor.machine.azureml import find_memory_folder, take_job_environment
from trainer.supervisor.machine.metadata import MetadataError
from trainer.supervisor.main import read_settings

CONFIG = NodeConfig(
    protocol=PROTOCOL,
    service_url="http://service",
    attempt_id="att-1",
    bootstrap_token="a secret",
    accelerator="cpu",
    processes_per_node=1,
    vm_size="Standard_ND96isr_H100_v5",
)
SECRETS = {"AZUREML_RUN_TOKEN": "a secret", "MLFLOW_TRACKING_TOKEN": "a secret"}
PYTORCH = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6105", "NODE_RANK": "1", "RANK": "1"}
JOB = {
    "REKINDLE_NODE": CONFIG.to_json(),
    "AZ_BATCH_NODE_ID": "tvmps_7_p",
    "AZUREML_RUN_ID": "rk-1",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    **PYTORCH,
    **SECRETS,
}
KEPT = {"PATH": "/bin", "NCCL_DEBUG": "INFO", "REKINDLE_METADATA_URL": "http://here"}


@pytest.mark.parametrize("missing", [{"AZ_BATCH_NODE_ID": ""}, {"MASTER_ADDR": "no-such.invalid"}])
async def test_a_node_that_cannot_say_who_it_is_asks_again(missing: dict[str, str]) -> None:
    job = take_job_environment(JOB | missing)

    assert job is not None
    with pytest.raises(MetadataError, match=next(iter(missing))):
        await job.instance()


def test_on_a_machine_of_a_scale_set_nothing_is_taken() -> None:
    environment = KEPT | PYTORCH
    settings = read_settings(environment)

    assert environment == KEPT | PYTORCH
    assert settings.job is None
    assert settings.memory is None


def test_what_the_environment_names_is_used_on_both_engines() -> None:
    named = {"REKINDLE_WORK_DIR": "/here", "REKINDLE_MEMORY_DIR": "/there"}
    environment = JOB | KEPT | named
    settings = read_settings(environment)

    assert (settings.work, settings.memory) == (Path("/here"), Path("/there"))
    assert settings.metadata_url == "http://here"
    assert not set(environment) & set(JOB), "they are for the supervisor alone"


def test_saves_lie_in_memory_where_the_job_was_given_enough(tmp_path: Path) -> None:
    assert find_memory_folder(tmp_path, share=0.0) == tmp_path / "rekindle"
    assert find_memory_folder(tmp_path, share=1e9) is None
    assert find_memory_folder(tmp_path / "none") is None


def test_a_supervisor_that_shows_itself_is_alive(tmp_path: Path) -> None:
    assert not liveness.is_alive(tmp_path, 0.0)
    liveness.touch_liveness_file(tmp_path)
    shown_at = (tmp_path / "alive").stat().st_mtime

    assert liveness.is_alive(tmp_path, shown_at + liveness.BEAT_SECONDS)
    assert not liveness.is_alive(tmp_path, shown_at + liveness.TIMEOUT_SECONDS)


def test_the_check_says_it_by_its_exit_code(tmp_path: Path) -> None:
    liveness.touch_liveness_file(tmp_path)
    young = _check(tmp_path)
    os.utime(tmp_path / "alive", (0, 0))
    result = _check(tmp_path)

    assert (young.returncode, young.stdout) == (0, "alive\n")
    assert (result.returncode, result.stdout) == (1, "no sign of life for 30 s\n")


def _check(work: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trainer.supervisor.machine.liveness", str(work)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
