"""The market as Microsoft's own clients see it, over TLS."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.computerecommender import RecommenderMgmtClient
from azure.mgmt.computerecommender.models import SpotPlacementScoresInput
from azure.mgmt.costmanagement import CostManagementClient
from azure.mgmt.costmanagement.models import QueryDefinition

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator, scale_set, set_url, wait_for

SCOPE = f"subscriptions/{SUBSCRIPTION}"
ND = "Standard_ND96amsr_A100_v4"
OPTIONS = ("--create-seconds", "0", "--delete-seconds", "0", "--hollow")
MARKET = ("--cost-delay-seconds", "0", "--spot-quota", "192")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator without delays, with its resource group."""
    running = Emulator(tmp_path_factory.mktemp("azure"), *OPTIONS, *MARKET)
    running.make_group()
    yield running
    running.destroy()


@pytest.fixture(scope="module")
def sign_in(emulator: Emulator) -> dict[str, Any]:
    """Return the options with which every client is made."""
    credential = ClientSecretCredential(
        TENANT,
        "me",
        "any",
        authority=emulator.arm_url,
        disable_instance_discovery=True,
        connection_verify=emulator.ca,
    )
    return {
        "credential": credential,
        "base_url": emulator.arm_url,
        "credential_scopes": [f"{emulator.arm_url}/.default"],
        "connection_verify": emulator.ca,
        "retry_total": 0,
    }


def test_the_compute_client_reads_skus_and_usages(sign_in: dict[str, Any]) -> None:
    with ComputeManagementClient(subscription_id=SUBSCRIPTION, **sign_in) as client:
        sizes = {s.name: s for s in client.resource_skus.list(filter="location eq 'eastus'")}
        usages = {u.name.value: u for u in client.usage.list("eastus")}

    capabilities = {c.name: c.value for c in sizes[ND].capabilities or []}
    assert capabilities["vCPUs"] == "96"
    assert sizes[ND].family in usages
    assert usages["lowPriorityCores"].limit == 192


@pytest.mark.parametrize("version", ["2025-06-05", "2026-09-05-preview"])
def test_the_recommender_client_scores_places(sign_in: dict[str, Any], version: str) -> None:
    wish = {
        "desiredLocations": ["eastus", "westus2"],
        "desiredSizes": [{"sku": ND}],
        "desiredCount": 2,
        "availabilityZones": False,
    }
    made = {"subscription_id": SUBSCRIPTION, "api_version": version, **sign_in}
    with RecommenderMgmtClient(**made) as client:
        found = client.spot_placement_scores.post("eastus", SpotPlacementScoresInput(wish))

    scores = found.placement_scores or []
    assert [(s.region, s.score) for s in scores] == [("eastus", "High"), ("westus2", "High")]


def test_the_cost_client_reads_what_was_metered(
    emulator: Emulator, sign_in: dict[str, Any]
) -> None:
    query = {
        "type": "ActualCost",
        "timeframe": "Custom",
        "timePeriod": {"from": "2020-01-01", "to": "2099-01-01"},
        "dataset": {
            "granularity": "Daily",
            "aggregation": {"totalCost": {"name": "PreTaxCost", "function": "Sum"}},
            "grouping": [{"type": "Dimension", "name": "ResourceId"}],
            "filter": {"tags": {"name": "jobId", "operator": "In", "values": ["j1"]}},
        },
    }
    with emulator.signed_in() as http, CostManagementClient(**sign_in) as client:
        body = scale_set(1) | {"tags": {"jobId": "j1"}}
        http.put(set_url("rk-cost"), json=body).raise_for_status()

        def told() -> list[list[Any]] | None:
            answer = client.query.usage(scope=SCOPE, parameters=QueryDefinition(query))
            return answer.rows if answer else None

        found = wait_for(told)

    assert found
    cost, day, resource, currency = found[0]
    assert cost > 0
    assert str(day).startswith("20")
    assert resource.endswith("/virtualmachinescalesets/rk-cost")
    assert currency == "USD"
