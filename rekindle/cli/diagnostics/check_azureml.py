"""Check the Azure Machine Learning workspace, if an offering or tracker uses one.

The roles are Azure's own: AzureML Compute Operator may make and delete clusters, AzureML Data
Scientist may do the rest but that (Microsoft Learn, "Manage access to Azure Machine Learning
workspaces").
"""

from collections.abc import Iterator
from typing import Any

import httpx

from contract.figures import EXPERIMENT, WORKSPACE, workspace_address
from rekindle.cli.diagnostics.arm_client import ArmClient, error_message
from rekindle.cli.diagnostics.check import CheckResult, doubtful_check, failed_check, passed_check
from rekindle.cli.diagnostics.check_roles import check_permissions
from rekindle.cli.diagnostics.check_subscription import check_provider, machine_cores

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


def workspace_checks(azure: ArmClient) -> Iterator[CheckResult]:
    """Yield checks of the provider, workspace, roles, and cluster quota of each region."""
    if (uri := azure.setting("MLFLOW_TRACKING_URI")).startswith(WORKSPACE):
        yield _check_mlflow(azure, workspace_address(uri))
    if not azure.clusters:
        return
    yield check_provider(azure, _ML)
    yield from _check_workspace(azure)
    named = azure.named_clusters
    for size, region, spot in azure.clusters:
        if (size, region, spot) not in [cluster[:3] for cluster in named]:
            yield _check_quota(azure, size, region, spot=spot)
    for size, region, spot, name in named:
        yield _check_cluster(azure, name, size, region, spot=spot)


def _check_mlflow(azure: ArmClient, address: str) -> CheckResult:
    """Check that the workspace's MLflow server accepts the service's token."""
    name = "Azure ML MLflow server"
    path = f"{address}/api/2.0/mlflow/experiments/get-by-name"
    try:
        answer = azure.http.get(path, params={"experiment_name": EXPERIMENT})
        # MLflow's code for an experiment that does not exist yet.
        if "RESOURCE_DOES_NOT_EXIST" not in answer.text:
            answer.raise_for_status()
    except httpx.HTTPError as error:
        remedy = (
            "Compare REKINDLE_MLFLOW_TRACKING_URI with: az ml workspace show -n NAME"
            " --query mlflow_tracking_uri; the role AzureML Data Scientist may write there"
        )
        return failed_check(name, error_message(error), remedy)
    return passed_check(name, "answers")


def _workspace_path(azure: ArmClient) -> str:
    group = azure.setting("AZUREML_RESOURCE_GROUP") or azure.group
    workspace = azure.setting("AZUREML_WORKSPACE")
    return f"/resourceGroups/{group}/providers/{_ML}/workspaces/{workspace}"


def _check_cluster(
    azure: ArmClient, cluster: str, size: str, region: str, *, spot: bool
) -> CheckResult:
    """Check that a named cluster matches its offering and can have nodes."""
    name = f"Azure ML cluster {cluster}"
    try:
        cluster_resource = azure.get(f"{_workspace_path(azure)}/computes/{cluster}", _VERSION)
    except httpx.HTTPError as error:
        remedy = "Create it, or correct its name in REKINDLE_OFFERINGS"
        return failed_check(name, error_message(error), remedy)
    inner = cluster_resource["properties"].get("properties") or {}
    actual = (
        str(inner.get("vmSize")),
        str(cluster_resource["location"]),
        str(inner.get("vmPriority")),
    )
    expected = (size, region, "LowPriority" if spot else "Dedicated")
    if [x.lower() for x in actual] != [x.lower() for x in expected]:
        actual_text, expected_text = " ".join(actual), " ".join(expected)
        remedy = "Correct the offering, or name a matching cluster"
        return failed_check(
            name, f"it is {actual_text}, but its offering says {expected_text}", remedy
        )
    max_nodes = inner["scaleSettings"]["maxNodeCount"]
    if max_nodes < 1:
        run = f"Run: az ml compute update -n {cluster} --max-instances N"
        return failed_check(name, "its maximum number of nodes is 0", run)
    return passed_check(name, f"jobs of up to {max_nodes} machines")


def _check_workspace(azure: ArmClient) -> Iterator[CheckResult]:
    name = azure.setting("AZUREML_WORKSPACE")
    group, path = azure.setting("AZUREML_RESOURCE_GROUP") or azure.group, _workspace_path(azure)
    try:
        workspace = azure.get(path, _VERSION)
    except httpx.HTTPError as error:
        run = f"Run: az ml workspace create -n {name or 'NAME'} -g {group} -l REGION"
        yield failed_check("Azure ML workspace", error_message(error), run)
        return
    other_regions = {region for _, region, _ in azure.clusters} - {workspace["location"]}
    if other_regions:
        regions = ", ".join(other_regions)
        yield doubtful_check(
            "Azure ML workspace",
            f"{name} is in {workspace['location']}, but clusters are to be in {regions}",
            "Data and images would cross regions; use offerings in the workspace's region",
        )
    else:
        yield passed_check("Azure ML workspace", name)
    scope = f"/subscriptions/{azure.subscription}{path}"
    yield check_permissions(azure, "AzureML Compute Operator", CLUSTERS, scope)
    yield check_permissions(azure, "AzureML Data Scientist", JOBS, scope)


def _check_quota(azure: ArmClient, size: str, region: str, *, spot: bool) -> CheckResult:
    """Check the quota of cluster cores, which is separate from that of virtual machines."""
    name = f"Azure ML quota of {size}@{region}"
    usages: list[Json] = azure.get(f"/providers/{_ML}/locations/{region}/usages", _VERSION)["value"]
    kind = "lowpriority" if spot else "dedicated"
    rows = [u for u in usages if kind in u["name"]["value"].lower().replace(" ", "")]
    if not rows:
        return doubtful_check(name, f"ARM lists no {kind} cores", "See: Azure ML studio, Quota")
    free, needed = rows[0]["limit"] - rows[0]["currentValue"], machine_cores(size, None)
    finding = f"{free} of {rows[0]['limit']} cores of clusters free, {needed} for each machine"
    if free >= needed:
        return passed_check(name, finding)
    return failed_check(name, finding, "Request more in Azure ML studio: Quota, Request quota")
