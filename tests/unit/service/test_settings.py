"""Settings from the environment and numbers of operators: complete, or refused with a sentence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from contract.choices import Engine
from service import console
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
    (offering,) = load().offerings

    assert (offering.engine, offering.cluster) == (Engine.AZUREML, "team-a100")
    assert offering == replace(offering, cluster="")  # rows of the database do not have it


@pytest.mark.parametrize(
    ("offerings", "mend"),
    [
        (" ,", "name at least one, SIZE@REGION"),
        ("S@eastus:azureml,S@eastus:azureml=a", "several clusters: name one cluster"),
        ("S@eastus:azureml=", "or :azureml=NAME for that one"),
        ("S@eastus:spott", "write :spot or :on_demand, or nei"),
        ("Standard_X", "SIZE@REGION"),
    ],
)
def test_offerings_that_cannot_be_read_are_refused_with_how_to_write_them(
    environment: pytest.MonkeyPatch, offerings: str, mend: str
) -> None:
    environment.setenv("REKINDLE_OFFERINGS", offerings)

    with pytest.raises(ValidationError, match=f"(?s)^1 .*\nofferings\n.*{mend}"):
        load()


@pytest.mark.parametrize("name", COMPLETE)
def test_half_a_configuration_starts_nothing(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)

    with pytest.raises(ValidationError, match=name.removeprefix("REKINDLE_").lower() + "|" + name):
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


def test_accounts_of_regions_and_policies_are_json(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REKINDLE_REGION_STORAGE", '{"westus3": "AccountName=near"}')
    environment.setenv("REKINDLE_AZURE_POLICY", '{"zones": {"eastus": "1"}}')
    settings = load()
    for name in ("REGION_STORAGE", "AZURE_POLICY"):
        environment.setenv(f"REKINDLE_{name}", "")

    assert settings.region_storage["westus3"].get_secret_value() == "AccountName=near"
    assert settings.azure_policy.zones == {"eastus": "1"}
    assert (load().region_storage, load().azure_policy.zones) == ({}, {})


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("REGION_STORAGE", "westus3=AccountName=near", "write it as JSON"),
        ("AZURE_POLICY", '{"zones": {"eastus": "7"}}', r"zones\.eastus"),
        ("RECOVERY_SECONDS", "0", "greater than 0"),
        ("GRANT_HOURS", "0", "grant_hours"),
        ("GRANT_HOURS", "145", "grant_hours"),  # more than a user delegation key lives
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    environment: pytest.MonkeyPatch, name: str, value: str, fault: str
) -> None:
    environment.setenv(f"REKINDLE_{name}", value)

    with pytest.raises(ValidationError, match=fault):
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
    ("variables", "hours"),
    [
        ({}, 24),
        ({"STORAGE": "https://account.blob.core.windows.net/"}, 1),
        ({"STORAGE": "https://account.blob.core.windows.net/", "OUTAGE_SECONDS": "7200"}, 4),
        ({"STORAGE": "https://account.blob.core.windows.net/", "GRANT_HOURS": "3"}, 3),
    ],
)
def test_urls_of_nodes_live_an_hour_where_no_account_key_can_revoke_them(
    environment: pytest.MonkeyPatch, variables: dict[str, str], hours: int
) -> None:
    for name, value in variables.items():
        environment.setenv(f"REKINDLE_{name}", value)

    assert load().grant_lifetime == timedelta(hours=hours)


WEIGHTS = ("nan", "inf", "1e309", "1e-320", "0", "-1", "heavy")
AMOUNTS = ("NaN", "Infinity", "$inf", "1e9", "1e-9", "much")
REFUSED = [
    *(("quota", f"--weight={text}", "is no weight: write a number") for text in WEIGHTS),
    *(("budget", f"--set={text}", "is no amount of dollars from 0.01") for text in AMOUNTS),
    ("quota", "--max-jobs=99999999999", "is no number up to 2147483647"),
    ("quota", f"--max-jobs={'9' * 5000}", "is no number up to 2147483647"),
    ("quota", "--max-jobs=many", "is no number up to 2147483647"),
]


@pytest.mark.parametrize(("command", "option", "expected"), REFUSED)
def test_a_number_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], command: str, option: str, expected: str
) -> None:
    with pytest.raises(SystemExit):
        console.parse_arguments(None, [command, option])

    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "hour"), [("2026-11-01", 0), ("2026-11-01T12:00", 12), ("2026-11-01T12:00+02:00", 10)]
)
def test_a_time_is_of_the_zone_that_it_names_and_else_utc(text: str, hour: int) -> None:
    options = console.parse_arguments(None, ["budget", "--set", "$10", "--since", text])

    assert options.since == datetime(2026, 11, 1, hour, tzinfo=UTC)
    assert options.set == 10
