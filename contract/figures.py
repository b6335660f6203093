"""Names of a step's metrics in experiment trackers, equal live and in later copies."""

from collections.abc import Mapping
from typing import Any

LARGEST = 3.4e38  # largest float in an event file
WORKSPACE = "azureml://"  # scheme of the MLflow server of an Azure ML workspace
EXPERIMENT = "rekindle"  # default experiment in a workspace
JOB_TAG = "rekindle.job"  # of a run: its job
STEP_TAG = "rekindle.step"  # of a run: its last complete step
_NO_FIGURES = ("step", "generation")
_VALID = "valid_loss"


def tagged(row: Mapping[str, Any]) -> dict[str, float]:
    """Return a step's finite metrics under the names that TensorBoard groups by."""
    finite = {n: v for n, v in row.items() if isinstance(v, int | float) and abs(v) <= LARGEST}
    figures = {f"train/{n}": v for n, v in finite.items() if n not in (*_NO_FIGURES, _VALID)}
    if _VALID not in finite:
        return figures
    if "reward" in finite:  # the validation loss is then minus a reward
        return figures | {"valid/reward": -finite[_VALID]}
    return figures | {"valid/loss": finite[_VALID]}


def workspace_address(uri: str) -> str:
    """Return the address at which an Azure ML workspace's MLflow server serves MLflow 2.

    >>> workspace_address("azureml://westeurope.api.azureml.ms/mlflow/v1.0/subscriptions/s")
    'https://westeurope.api.azureml.ms/mlflow/v2.0/subscriptions/s'
    """
    plain = uri.partition("?")[0].rstrip("/")
    return plain.replace(WORKSPACE, "https://", 1).replace("/mlflow/v1.0", "/mlflow/v2.0", 1)
