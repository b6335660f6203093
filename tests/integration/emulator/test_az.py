"""Requests as `az` 2.91 sends them: its paths, its cases, its versions, its half-empty bodies."""

from collections.abc import Iterator

import pytest

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator without delays, with its resource group."""
    quick = ("--create-seconds", "0", "--delete-seconds", "0")
    running = Emulator(tmp_path_factory.mktemp("azure"), *quick)
    running.make_group()
    yield running
    running.destroy()


def test_az_registers_the_cloud_and_signs_in(emulator: Emulator) -> None:
    with emulator.http() as anonymous, emulator.signed_in() as client:
        cloud = anonymous.get("/metadata/endpoints?api-version=2022-09-01").json()
        openid = anonymous.get(f"/{TENANT}/v2.0/.well-known/openid-configuration").json()
        listed = client.get("/subscriptions?api-version=2022-12-01").json()["value"]

    assert cloud["resourceManager"] == cloud["authentication"]["loginEndpoint"] == emulator.arm_url
    assert openid["token_endpoint"] == f"{emulator.arm_url}/{TENANT}/oauth2/v2.0/token"
    assert [row["subscriptionId"] for row in listed] == [SUBSCRIPTION]
