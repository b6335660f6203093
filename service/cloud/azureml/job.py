"""The cluster and the job to request from Azure Machine Learning, and its client.

Only this module imports azure-ai-ml, when the first of these is made: it is an extra.
"""

import logging
from typing import Any
from urllib.parse import urlsplit

from service.cloud.azureml.model_registry import RegisteredModel
from service.cloud.azureml.views import LOW_PRIORITY
from service.cloud.provider import OWNER_TAG, Misconfigured
from service.domain.cloud.fleet import ScaleSetSpec
from service.domain.performance.vm_catalogue import lookup
from service.domain.states import CapacityType

CONFIG = "REKINDLE_NODE"  # the node's configuration; trainer/supervisor/main.py takes it out
COMMAND = "python3 -m trainer.supervisor"
_IDLE_SECONDS = 120  # of a node that has nothing to do, until it goes
_ATTEMPTS = 0  # of the client itself: back-off is the caller's


def client(credential: Any, workspace: tuple[str, str, str], base_url: str, ca_path: str) -> Any:  # noqa: ANN401 - MLClient and its credential
    """Return the workspace's client; ``workspace``: subscription, resource group, workspace."""
    # Else a line for each call, and some while it is imported.
    logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)
    try:
        from azure.ai.ml import MLClient  # noqa: PLC0415 - an extra, and a second to import
    except ImportError as error:
        raise Misconfigured(
            "REKINDLE_AZUREML_WORKSPACE is set, and azure-ai-ml is not installed."
            " Install rekindle[azureml], or unset it and take :azureml out of REKINDLE_OFFERINGS."
        ) from error
    subscription, group, workspace_name = workspace
    return MLClient(
        credential,
        subscription,
        group,
        workspace_name,
        enable_telemetry=False,
        show_progress=False,
        retry_total=_ATTEMPTS,
        **({"connection_verify": ca_path} if ca_path else {}),
        **(_cloud(base_url) if base_url else {}),
    )


def cluster(name: str, spec: ScaleSetSpec, owner: str, identity_id: str, subnet_id: str) -> Any:  # noqa: ANN401 - AmlCompute
    """Return a cluster that has no nodes until its job is there."""
    from azure.ai.ml.entities import (  # noqa: PLC0415 - as above
        AmlCompute,
        IdentityConfiguration,
        ManagedIdentityConfiguration,
        NetworkSettings,
    )

    spot = spec.offering.capacity_type is CapacityType.SPOT
    extra: dict[str, Any] = {}
    if identity_id:
        identities = [ManagedIdentityConfiguration(resource_id=identity_id)]
        extra["identity"] = IdentityConfiguration(
            type="user_assigned", user_assigned_identities=identities
        )
    if subnet_id:
        extra["network_settings"] = NetworkSettings(subnet=subnet_id)
    return AmlCompute(
        name=name,
        location=spec.offering.region,
        size=spec.offering.vm_size,
        tier=LOW_PRIORITY if spot else "dedicated",
        min_instances=0,
        max_instances=spec.instance_count,
        idle_time_before_scale_down=_IDLE_SECONDS,
        ssh_public_access_enabled=False,
        tags={**spec.tags, OWNER_TAG: owner},
        **extra,
    )


def begin_create(client: Any, compute: Any) -> None:  # noqa: ANN401 - MLClient, AmlCompute
    """Request the cluster. ``client.compute`` would start a thread that polls until it exists."""
    compute._set_full_subnet_name(client.subscription_id, client.resource_group_name)  # noqa: SLF001
    client.compute._operation.begin_create_or_update(  # noqa: SLF001
        client.resource_group_name,
        client.workspace_name,
        compute_name=compute.name,
        parameters=compute._to_rest_object(),  # noqa: SLF001
        polling=False,
    )


def begin_delete(client: Any, name: str) -> None:  # noqa: ANN401 - MLClient
    """Request the deletion of the cluster, without that thread."""
    client.compute._operation.begin_delete(  # noqa: SLF001
        client.resource_group_name,
        client.workspace_name,
        compute_name=name,
        underlying_resource_action="Delete",
        polling=False,
    )


def clusters(client: Any) -> list[tuple[Any, int]]:  # noqa: ANN401 - MLClient, AmlCompute
    """List clusters with the number of their nodes, which the client's own entity leaves out."""
    from azure.ai.ml.entities import AmlCompute, Compute  # noqa: PLC0415 - as above

    rows = client.compute._operation.list(  # noqa: SLF001
        client.resource_group_name, client.workspace_name
    )
    entities = [(Compute._from_rest_object(row), row.properties.properties) for row in rows]  # noqa: SLF001
    return [
        (entity, inner.current_node_count or 0)
        for entity, inner in entities
        if isinstance(entity, AmlCompute)
    ]


def job(name: str, compute: str, spec: ScaleSetSpec, owner: str) -> Any:  # noqa: ANN401 - Command
    """Return the job: without a distribution its supervisor would run on one node only."""
    from azure.ai.ml import command  # noqa: PLC0415 - as above
    from azure.ai.ml.entities import Environment  # noqa: PLC0415 - as above

    sku = lookup(spec.offering.vm_size)
    return command(
        name=name,
        display_name=name,
        command=COMMAND,
        environment=Environment(image=spec.image),
        environment_variables={CONFIG: spec.node_config},
        compute=compute,
        instance_count=spec.instance_count,
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        tags={**spec.tags, OWNER_TAG: owner},
        shm_size=f"{sku.ram_gib // 2}g" if sku else "2g",  # saves lie in memory
    )


def model(registered_model: RegisteredModel) -> Any:  # noqa: ANN401 - Model
    """Return an entry of the workspace's registry, whose files stay where they are.

    A name has letters, digits, "-" and "_" (Azure's REST API, model versions), a version is a whole
    number (reference-yaml-model), and a path may be any remote URI (azure-ai-ml 1.35, Model).
    """
    from azure.ai.ml.entities import Model  # noqa: PLC0415 - as above

    return Model(
        name=registered_model.name,
        version=registered_model.version,
        path=registered_model.url,
        type="custom_model",
        tags=dict(registered_model.tags),
    )


def _cloud(base_url: str) -> dict[str, Any]:
    """Return the arguments that point the client at a private endpoint."""
    name = f"rekindle-{urlsplit(base_url).port}"
    roles = ("resource_manager", "azure_portal", "active_directory", "aml_resource_id")
    metadata = {**dict.fromkeys(roles, base_url), "registry_discovery_endpoint": base_url}
    return {"cloud": name, "cloud_metadata": metadata | {"storage_endpoint": "localhost"}}
