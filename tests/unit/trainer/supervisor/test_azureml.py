"""A node of a job in Azure ML: who it is, what it takes out of its environment, where saves lie."""

from pathlib import Path

import pytest

from trainer.contract import PROTOCOL, NodeConfig
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


def test_what_azure_ml_says_is_for_the_supervisor_alone() -> None:
    environment = JOB | KEPT
    settings = read_settings(environment)

    assert environment == KEPT
    assert settings.job is not None
    assert NodeConfig.from_json(settings.job.config) == CONFIG
    assert (settings.work, settings.metadata_url) == (Path("rekindle"), "http://here")


def test_on_a_machine_of_a_scale_set_nothing_is_taken() -> None:
    environment = KEPT | PYTORCH
    settings = read_settings(environment)

    assert environment == KEPT | PYTORCH
    assert settings.job is None
    assert settings.memory is None


def test_what_the_environment_names_is_used_on_both_engines() -> None:
    named = {"REKINDLE_WORK_DIR": "/here", "REKINDLE_MEMORY_DIR": "/there"}
    settings = read_settings(JOB | named)

    assert (settings.work, settings.memory) == (Path("/here"), Path("/there"))


def test_saves_lie_in_memory_where_the_job_was_given_enough(tmp_path: Path) -> None:
    assert find_memory_folder(tmp_path, share=0.0) == tmp_path / "rekindle"
    assert find_memory_folder(tmp_path, share=1e9) is None
    assert find_memory_folder(tmp_path / "none") is None
