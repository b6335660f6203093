"""Check the Azure Machine Learning workspace, if an offering or tracker uses one.

The roles are Azure's own: AzureML Compute Operator may make and delete clusters, AzureML Data
Scientist may do the rest but that (Microsoft Learn, "Manage access to Azure Machine Learning
workspaces").
"""

from collections.abc import Iterator
from typing import Any

import httpx

from contract.figures import EXPERIMENT, WORKSPACE, workspace_address
from rekindle.cli.diagnostics.arm_client import ArmClient, said
from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok
from rekindle.cli.diagnostics.check_roles import granted
from rekindle.cli.diagnostics.check_subscription import cores, provider

_ML = "Microsoft.MachineLearningServices"
_VERSION = "2023-08-01-preview"
CLUSTERS = tuple(
    f"{_ML}/workspaces/computes/{verb}" for verb in ("read", "write", "delete", "listNodes/action")
)
JOBS = tuple(
    f"{_ML}/workspaces/{verb}"
    for verb in (
        *("read", "jobs/read", "jobs/write", "jobs/cancel/action"),
        *("environments/read", "environments/versions/read", "environments/versions/write"),
        "experiments/runs/read",
    )
)
Json = dict[str, Any]


def checks(azure: ArmClient) -> Iterator[CheckResult]:
    """Yield checks of the provider, workspace, roles, and cluster quota of each region."""
    if (uri := azure.setting("MLFLOW_TRACKING_URI")).startswith(WORKSPACE):
        yield _mlflow(azure, workspace_address(uri))
    if not azure.clusters:
        return
    yield provider(azure, _ML)
    yield from _workspace(azure)
    named = azure.named_clusters
    for size, region, spot in azure.clusters:
        if (size, region, spot) not in [one[:3] for one in named]:
            yield _quota(azure, size, region, spot=spot)
    for size, region, spot, name in named:
        yield _named(azure, name, size, region, spot=spot)


def _mlflow(azure: ArmClient, address: str) -> CheckResult:
    """Check that the workspace's MLflow server accepts the service's token."""
    name = "Azure ML MLflow server"
    path = f"{address}/api/2.0/mlflow/experiments/get-by-name"
    try:
        answer = azure.http.get(path, params={"experiment_name": EXPERIMENT})
        if (
            "RESOURCE_DOES_NOT_EXIST" not in answer.text
        ):  # MLflow's code: the experiment does not exist yet
            answer.raise_for_status()
    except httpx.HTTPError as error:
        then = (
            "Compare REKINDLE_MLFLOW_TRACKING_URI with: az ml workspace show -n NAME"
            " --query mlflow_tracking_uri; the role AzureML Data Scientist may write there"
        )
        return missing(name, said(error), then)
    return ok(name, "answers")


def _path(azure: ArmClient) -> str:
    group = azure.setting("AZUREML_RESOURCE_GROUP") or azure.group
    workspace = azure.setting("AZUREML_WORKSPACE")
    return f"/resourceGroups/{group}/providers/{_ML}/workspaces/{workspace}"


def _named(azure: ArmClient, cluster: str, size: str, region: str, *, spot: bool) -> CheckResult:
    """Check that a named cluster matches its offering and can have nodes."""
    name = f"Azure ML cluster {cluster}"
    try:
        found = azure.get(f"{_path(azure)}/computes/{cluster}", _VERSION)
    except httpx.HTTPError as error:
        then = "Create it, or correct its name in REKINDLE_OFFERINGS"
        return missing(name, said(error), then)
    inner = found["properties"].get("properties") or {}
    there = (str(inner.get("vmSize")), str(found["location"]), str(inner.get("vmPriority")))
    wanted = (size, region, "LowPriority" if spot else "Dedicated")
    if [x.lower() for x in there] != [x.lower() for x in wanted]:
        is_, should = " ".join(there), " ".join(wanted)
        then = "Correct the offering, or name a matching cluster"
        return missing(name, f"it is {is_}, but its offering says {should}", then)
    most = inner["scaleSettings"]["maxNodeCount"]
    if most < 1:
        run = f"Run: az ml compute update -n {cluster} --max-instances N"
        return missing(name, "its maximum number of nodes is 0", run)
    return ok(name, f"jobs of up to {most} machines")


def _workspace(azure: ArmClient) -> Iterator[CheckResult]:
    name = azure.setting("AZUREML_WORKSPACE")
    group, path = azure.setting("AZUREML_RESOURCE_GROUP") or azure.group, _path(azure)
    try:
        found = azure.get(path, _VERSION)
    except httpx.HTTPError as error:
        run = f"Run: az ml workspace create -n {name or 'NAME'} -g {group} -l REGION"
        yield missing("Azure ML workspace", said(error), run)
        return
    elsewhere = {region for _, region, _ in azure.clusters} - {found["location"]}
    if elsewhere:
        yield doubt(
            "Azure ML workspace",
            f"{name} is in {found['location']}, but clusters are to be in {', '.join(elsewhere)}",
            "Data and images would cross regions; use offerings in the workspace's region",
        )
    else:
        yield ok("Azure ML workspace", name)
    scope = f"/subscriptions/{azure.subscription}{path}"
    yield granted(azure, "AzureML Compute Operator", CLUSTERS, scope)
    yield granted(azure, "AzureML Data Scientist", JOBS, scope)


def _quota(azure: ArmClient, size: str, region: str, *, spot: bool) -> CheckResult:
    """Check the quota of cluster cores, which is separate from that of virtual machines."""
    name = f"Azure ML quota of {size}@{region}"
    usages: list[Json] = azure.get(f"/providers/{_ML}/locations/{region}/usages", _VERSION)["value"]
    kind = "lowpriority" if spot else "dedicated"
    rows = [u for u in usages if kind in u["name"]["value"].lower().replace(" ", "")]
    if not rows:
        return doubt(name, f"ARM lists no {kind} cores", "See: Azure ML studio, Quota")
    left, needed = rows[0]["limit"] - rows[0]["currentValue"], cores(size, None)
    found = f"{left} of {rows[0]['limit']} cores of clusters free, {needed} for each machine"
    if left >= needed:
        return ok(name, found)
    return missing(name, found, "Request more in Azure ML studio: Quota, Request quota")
