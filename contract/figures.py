"""Names of a step's figures in experiment trackers: the same live and in later copies."""

from collections.abc import Mapping
from typing import Any

LARGEST = 3.4e38  # of a float in an event file
WORKSPACE = "azureml://"  # scheme of the MLflow server of an Azure ML workspace
EXPERIMENT = "rekindle"  # in a workspace, of jobs that name none
JOB_TAG, STEP_TAG = "rekindle.job", "rekindle.step"  # of a run: whose it is, its last whole step
_NO_FIGURES = ("step", "generation")
_VALID = "valid_loss"


def tagged(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite figures of one step under the names that TensorBoard groups by."""
    known = {n: v for n, v in row.items() if isinstance(v, int | float) and abs(v) <= LARGEST}
    found = {f"train/{n}": v for n, v in known.items() if n not in (*_NO_FIGURES, _VALID)}
    if _VALID not in known:
        return found
    if "reward" in known:  # the validation loss is then minus a reward
        return found | {"valid/reward": -known[_VALID]}
    return found | {"valid/loss": known[_VALID]}


def workspace_address(uri: str) -> str:
    """Return where the MLflow server of an Azure ML workspace takes the calls of MLflow 2.

    >>> workspace_address("azureml://westeurope.api.azureml.ms/mlflow/v1.0/subscriptions/s")
    'https://westeurope.api.azureml.ms/mlflow/v2.0/subscriptions/s'
    """
    plain = uri.partition("?")[0].rstrip("/")
    return plain.replace(WORKSPACE, "https://", 1).replace("/mlflow/v1.0", "/mlflow/v2.0", 1)
