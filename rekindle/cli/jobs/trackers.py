"""Copy a job's metrics to MLflow or Weights & Biases from this machine.

The user installs either package. A later copy continues the same run.
"""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from contract.figures import JOB_TAG as TAG
from contract.figures import STEP_TAG as LAST
from rekindle.cli.errors import CliError, ExitCode

BATCH = 1000  # MLflow's limit for one request

Rows = Sequence[tuple[int, float, dict[str, float]]]  # step, Unix seconds, metrics


def copy_to_mlflow(uri: str, job: str, rows: Rows) -> str:
    """Copy all rows to the job's run in the experiment `rekindle`; return where that is."""
    _import_package("mlflow", "--mlflow")
    client = import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
    metric = import_module("mlflow.entities").Metric
    existing = client.get_experiment_by_name("rekindle")
    experiment = existing.experiment_id if existing else client.create_experiment("rekindle")
    runs = client.search_runs(
        [experiment], f"tags.`{TAG}` = {_quote_filter_value(job)}", max_results=1
    )
    run = runs[0] if runs else client.create_run(experiment, tags={TAG: job}, run_name=job)
    copied = int(run.data.tags.get(LAST, 0))
    metrics = [
        metric(name, value, int(1000 * at), step)
        for step, at, measured in rows
        if step > copied
        for name, value in measured.items()
    ]
    for first in range(0, len(metrics), BATCH):
        client.log_batch(run.info.run_id, metrics=metrics[first : first + BATCH])
    client.set_tag(run.info.run_id, LAST, max([copied, *(step for step, _, _ in rows)]))
    with redirect_stdout(sys.stderr):  # it prints links, and our stdout may be JSON
        client.set_terminated(run.info.run_id)
    return f"run {run.info.run_id} of {uri}"


def _quote_filter_value(value: str) -> str:
    """Quote a value for an MLflow filter, which has two kinds of quotes and no escape."""
    return f'"{value}"' if "'" in value else f"'{value}'"


def copy_to_wandb(project: str, job: str, rows: Rows) -> str:
    """Copy all rows to the job's run in this project; return where that is."""
    wandb = _import_package("wandb", "--wandb")
    run = wandb.init(project=project, id=job, name=job, resume="allow")
    for step, _, measured in rows:
        run.log(measured, step=step)
    run.finish()
    return f"run {job} of project {project}"


def _import_package(package: str, option: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(package)
    except ImportError:
        raise CliError(
            f"{option} needs the package {package}, which is not installed.",
            f"Install it: pip install {package}. Or use --csv or --tensorboard instead.",
            exit_code=ExitCode.USAGE,
            code="package_missing",
        ) from None
