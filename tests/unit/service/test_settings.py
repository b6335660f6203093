"""Settings from the environment: complete, or refused with the variable's name."""

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import ValidationError

from contract.choices import Engine
from service.domain.states import CapacityType
from service.settings import Settings

COMPLETE = {
    "REKINDLE_DATABASE_URL": "postgresql://localhost/rekindle",
    "REKINDLE_STORAGE": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=aw==",
    "REKINDLE_PUBLIC_URL": "https://rekindle.example",
    "REKINDLE_SECRET_KEY": "x" * 32,
    "REKINDLE_DEPLOYMENT": "tests",
    "REKINDLE_AZURE_SUBSCRIPTION_ID": "subscription",
    "REKINDLE_AZURE_RESOURCE_GROUP": "group",
    "REKINDLE_AZURE_SUBNET_ID": "/subnets/one",
    "REKINDLE_AZURE_SSH_PUBLIC_KEY": "ssh-ed25519 AAAA",
    "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus, Standard_X@westus3:on_demand",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set a complete environment, from which a test may remove variables."""
    for name, value in COMPLETE.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def load() -> Settings:
    return Settings()  # type: ignore[call-arg]  # the environment fills it


def test_offerings_are_read_as_size_at_region(environment: pytest.MonkeyPatch) -> None:
    first, second = load().offerings

    assert (first.vm_size, first.region) == ("Standard_ND96amsr_A100_v4", "eastus")
    assert first.capacity_type is CapacityType.SPOT
    assert second.capacity_type is CapacityType.ON_DEMAND


def test_an_offering_names_an_existing_cluster(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_AZUREML_WORKSPACE", "ws")
    environment.setenv("REKINDLE_OFFERINGS", "Standard_X@eastus:on_demand:azureml=team-a100")
    (one,) = load().offerings

    assert (one.engine, one.cluster) == (Engine.AZUREML, "team-a100")
    assert one == replace(one, cluster="")  # rows of the database do not have it


@pytest.mark.parametrize(
    ("told", "mend"),
    [
        (" ,", "name at least one, SIZE@REGION"),
        ("S@eastus:azureml,S@eastus:azureml=a", "several clusters: name one cluster"),
        ("S@eastus:azureml=", "or :azureml=NAME for that one"),
        ("S@eastus:spott", "write :spot or :on_demand, or nei"),
    ],
)
def test_offerings_that_cannot_be_read_are_refused_with_how_to_write_them(
    environment: pytest.MonkeyPatch, told: str, mend: str
) -> None:
    environment.setenv("REKINDLE_OFFERINGS", told)

    with pytest.raises(ValidationError, match=f"(?s)^1 .*\nofferings\n.*{mend}"):
        load()


@pytest.mark.parametrize("name", COMPLETE)
def test_a_service_that_is_half_configured_does_not_start(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    environment.delenv(name)

    with pytest.raises(ValidationError, match=name.removeprefix("REKINDLE_").lower() + "|" + name):
        load()


def test_an_offering_that_makes_no_sense_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_OFFERINGS", "Standard_X")

    with pytest.raises(ValidationError, match="SIZE@REGION"):
        load()


def test_a_recovery_that_takes_no_time_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_RECOVERY_SECONDS", "0")

    with pytest.raises(ValidationError, match="greater than 0"):
        load()


@pytest.mark.parametrize(("reserved", "seconds"), [(None, 1800), ("60", 60), ("0", 0)])
def test_budgets_reserve_an_outage_as_long_as_nodes_wait_unless_told_otherwise(
    environment: pytest.MonkeyPatch, reserved: str | None, seconds: int
) -> None:
    if reserved is not None:
        environment.setenv("REKINDLE_BUDGET_OUTAGE_SECONDS", reserved)
    allowance = load().allowance

    assert allowance.outage.total_seconds() == seconds
    assert allowance.silence.total_seconds() == 1800


def test_accounts_of_regions_are_read_from_json(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_REGION_STORAGE", '{"westus3": "AccountName=near"}')

    assert load().region_storage["westus3"].get_secret_value() == "AccountName=near"


def test_an_empty_variable_names_no_regions(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_REGION_STORAGE", "")

    assert load().region_storage == {}


def test_accounts_of_regions_that_make_no_sense_are_refused(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("REKINDLE_REGION_STORAGE", "westus3=AccountName=near")

    with pytest.raises(ValidationError, match="write it as JSON"):
        load()


def test_a_policy_is_read_from_json_and_an_empty_one_asks_for_nothing(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("REKINDLE_AZURE_POLICY", '{"zones": {"eastus": "1"}}')
    assert load().azure_policy.zones == {"eastus": "1"}

    environment.setenv("REKINDLE_AZURE_POLICY", "")
    assert load().azure_policy.zones == {}


def test_a_policy_that_makes_no_sense_is_refused_with_its_member(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("REKINDLE_AZURE_POLICY", '{"zones": {"eastus": "7"}}')

    with pytest.raises(ValidationError, match=r"zones\.eastus"):
        load()


def test_secrets_are_never_printed(environment: pytest.MonkeyPatch) -> None:
    assert "x" * 32 not in repr(load())
    assert "AccountKey" not in repr(load())


@pytest.mark.parametrize(
    ("endpoint", "emulated"),
    [
        ("https://management.azure.com", False),
        ("https://management.usgovcloudapi.net", False),
        ("https://localhost:8081", True),
        ("https://emulator:8081", True),
    ],
)
def test_machines_are_emulated_unless_the_endpoint_is_azures(
    environment: pytest.MonkeyPatch, endpoint: str, emulated: bool
) -> None:
    environment.setenv("REKINDLE_CLOUD", "azure")
    for name in ("SUBSCRIPTION_ID", "RESOURCE_GROUP", "SUBNET_ID", "SSH_PUBLIC_KEY"):
        environment.setenv(f"REKINDLE_AZURE_{name}", "x")
    environment.setenv("REKINDLE_AZURE_ENDPOINT", endpoint)

    assert load().emulated is emulated


@pytest.mark.parametrize(
    ("told", "hours"),
    [
        ({}, 24),
        ({"STORAGE": "https://account.blob.core.windows.net/"}, 1),
        ({"STORAGE": "https://account.blob.core.windows.net/", "OUTAGE_SECONDS": "7200"}, 4),
        ({"STORAGE": "https://account.blob.core.windows.net/", "GRANT_HOURS": "3"}, 3),
    ],
)
def test_urls_of_nodes_live_an_hour_where_no_account_key_can_revoke_them(
    environment: pytest.MonkeyPatch, told: dict[str, str], hours: int
) -> None:
    for name, value in told.items():
        environment.setenv(f"REKINDLE_{name}", value)

    assert load().grant_life == timedelta(hours=hours)


@pytest.mark.parametrize("hours", ["0", "145"])
def test_urls_of_nodes_live_no_longer_than_a_user_delegation_key(
    environment: pytest.MonkeyPatch, hours: str
) -> None:
    environment.setenv("REKINDLE_GRANT_HOURS", hours)

    with pytest.raises(ValidationError, match="grant_hours"):
        load()
