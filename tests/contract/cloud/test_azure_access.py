"""Settings of a service that give it access to Azure's market and bills."""

from datetime import date
from pathlib import Path

from pydantic import SecretStr

from service import azure_access
from service.cloud.azureml.adapter import AzureMlCloud
from service.cloud.fake import FakeRegistry
from service.domain.spot.market import EvictionBand
from service.pricing.bills import FakeBills
from service.pricing.fake_market import FakeMarket
from service.settings import Settings
from tests.emulated.process import GROUP, SUBSCRIPTION, TENANT, Emulator


def settings(emulator: Emulator) -> Settings:
    return Settings(
        database_url=SecretStr("postgresql://nowhere"),
        storage=SecretStr("nowhere"),
        public_url="http://service",
        secret_key=SecretStr("a secret that is long enough for the tests"),
        deployment="test",
        azure_subscription_id=SUBSCRIPTION,
        azure_resource_group=GROUP,
        azure_tenant_id=TENANT,
        azure_client_id="service",
        azure_client_secret=SecretStr("any"),
        azure_endpoint=emulator.arm_url,
        azure_ca=Path(emulator.ca),
        azure_subnet_id="/subnets/nodes",
        azure_ssh_public_key="ssh-ed25519 AAAA somebody",
        offerings="Standard_ND96amsr_A100_v4@eastus,Standard_ND96amsr_A100_v4@eastus:on_demand",  # type: ignore[arg-type] # as the environment has it
    )


async def test_the_service_reaches_market_and_bill_with_its_own_identity(
    emulator: Emulator,
) -> None:
    configured = settings(emulator)
    market, bills = azure_access.market(configured), azure_access.bills(configured)

    bands = await market.bands(configured.spot_pools)
    billed = await bills.billed(date(2026, 1, 1), date(2026, 1, 2))
    await market.close()
    await bills.close()

    assert list(bands.values()) == [EvictionBand.TO_5]  # on demand has none
    assert billed == []


async def test_a_service_without_azure_has_a_market_and_bills_that_say_nothing(
    emulator: Emulator,
) -> None:
    alone = settings(emulator).model_copy(update={"cloud": "fake"})

    assert isinstance(azure_access.market(alone), FakeMarket)
    assert isinstance(azure_access.bills(alone), FakeBills)


async def test_models_are_registered_only_where_a_workspace_is_named(emulator: Emulator) -> None:
    unnamed = settings(emulator)
    named = unnamed.model_copy(update={"azureml_workspace": "ws"})
    alone = named.model_copy(update={"cloud": "fake"})
    registry = azure_access.models(named)
    assert isinstance(registry, AzureMlCloud)
    await registry.close()

    assert azure_access.models(unnamed) is None
    assert isinstance(azure_access.models(alone), FakeRegistry)
