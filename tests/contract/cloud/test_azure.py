"""Behaviour of the Azure adapter only, against a scripted ARM."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from service.cloud.azure import remaining
from service.cloud.azure.adapter import AzureCloud
from service.cloud.azure.serial_log import fetch_end
from service.cloud.azure.template import AzureSettings
from service.cloud.provider import (
    OWNER_TAG,
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import Offering, ScaleSetSpec
from service.domain.states import CapacityType

SETTINGS = AzureSettings(
    subscription_id="sub",
    resource_group="group",
    owner="me",
    subnet_id="/subnet",
    ssh_public_key="ssh-ed25519 AAAA somebody",
)
SPEC = ScaleSetSpec(
    name="rk-1",
    offering=Offering(
        region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
    ),
    instance_count=2,
    cloud_init="#cloud-config\n",
)
Answer = tuple[int, dict[str, str], Any]


@dataclass
class Arm:
    """Scripted ARM: answers each request with the next line of its script, and records it.

    A line with status 0 never answers.
    """

    url: str
    ca_path: str
    script: list[Answer] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def will_answer(self, status: int, body: object = None, **headers: str) -> None:
        """Add a line; `_` in a header's name stands for `-`."""
        header_by_name = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append((status, header_by_name, body))

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        status, headers, body = self.script.pop(0)
        if status == 0:
            await self.over.wait()
        return web.json_response(body, status=status, headers=headers)


class Credential:
    """Credential that returns a token or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        if self._error:
            raise self._error
        return AccessToken("token", int(time.time()) + 3600)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def __aenter__(self) -> "Credential":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: there is no connection."""


@pytest.fixture
async def arm(tmp_path: Path) -> AsyncIterator[Arm]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = Arm(url="", ca_path=str(tmp_path / "ca.pem"))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    server.url = f"https://localhost:{runner.addresses[0][1]}"
    yield server
    server.over.set()
    await runner.cleanup()


@asynccontextmanager
async def adapter(
    arm: Arm, credential: Credential | None = None, *, ca_path: str = "", call_seconds: float = 5
) -> AsyncIterator[AzureCloud]:
    azure_cloud = AzureCloud(
        SETTINGS,
        credential or Credential(),
        base_url=arm.url,
        ca_path=ca_path or arm.ca_path,
        call_seconds=call_seconds,
    )
    yield azure_cloud
    await azure_cloud.close()


@pytest.fixture
async def cloud(arm: Arm) -> AsyncIterator[AzureCloud]:
    async with adapter(arm) as azure_cloud:
        yield azure_cloud


async def test_a_create_asks_for_nothing_to_be_there_and_is_not_polled(
    arm: Arm, cloud: AzureCloud
) -> None:
    arm.will_answer(201, {"name": "rk-1"}, Azure_AsyncOperation=f"{arm.url}/op", Retry_After="1")
    await cloud.create(SPEC)
    (request,) = arm.requests

    assert request.method == "PUT"
    assert request.headers["If-None-Match"] == "*"
    assert request.path.endswith(
        "/resourceGroups/group/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
    )


async def test_remaining_calls_are_passed_on(arm: Arm) -> None:
    counts_by_policy = {
        "Microsoft.Compute/HighCostGetVMScaleSetSubscriptionMaximum;%d": (900, 899),
        "Microsoft.Compute/HighCostGetVMScaleSetResource;%d": (3, 2),
    }
    for n in range(2):
        header = ",".join(name % counts[n] for name, counts in counts_by_policy.items())
        arm.will_answer(200, {"value": []}, **{remaining.HEADER: header})
    async with adapter(arm) as cloud:
        with remaining.gather_remaining() as gathered:
            await cloud.list_owned()
        await cloud.list_owned()

    assert gathered == {"HighCostGetVMScaleSet": 900}  # of the calls within, and of the region


async def test_an_azure_that_does_not_answer_is_given_up(arm: Arm) -> None:
    arm.will_answer(0)
    async with adapter(arm, call_seconds=0.2) as cloud:
        with pytest.raises(CloudError, match="did not answer within"):
            await cloud.get("rk-1")


async def test_an_azure_that_cannot_be_reached_is_worth_another_try(arm: Arm) -> None:
    unreachable = Arm(url="https://localhost:9", ca_path=arm.ca_path)
    async with adapter(unreachable) as cloud:
        with pytest.raises(CloudError, match="cannot be reached") as failed:
            await cloud.get("rk-1")

    assert type(failed.value) is CloudError


async def test_a_certificate_of_a_stranger_is_refused(arm: Arm, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    async with adapter(arm, ca_path=str(stranger)) as cloud:
        with pytest.raises(Misconfigured, match="certificate is not trusted"):
            await cloud.get("rk-1")

    assert arm.requests == []


async def test_without_a_token_a_person_must_act(arm: Arm) -> None:
    credential = Credential(ClientAuthenticationError("The secret has expired."))
    async with adapter(arm, credential) as cloud:
        with pytest.raises(Misconfigured, match="The secret has expired"):
            await cloud.get("rk-1")


def _error(code: str, message: str = "") -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _scale_set(state: str) -> dict[str, Any]:
    return {
        "name": "rk-1",
        "location": "eastus",
        "tags": {OWNER_TAG: "me"},
        "sku": {"capacity": 2},
        "properties": {"provisioningState": state},
    }


async def test_why_a_serial_log_cannot_be_fetched_is_told_without_its_sas() -> None:
    for url in (None, "http://127.0.0.1:1/log?sig=secret", "http://[/log?sig=secret"):
        with pytest.raises(NoSerialLog) as refused:
            await fetch_end(url)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("call", "answers", "error", "message"),
    [
        ("create",
         [(409, _error("OperationNotAllowed", "exceeding approved LowPriorityCores quota"))],
         InsufficientCapacity, "Raise it in the Azure portal"),
        ("delete", [(503, _error("ServiceUnavailable"))], CloudError, "ServiceUnavailable"),
        ("get", [(404, "a proxy's own page")], CloudError, ""),
        ("get", [(404, _error("ResourceGroupNotFound"))], Misconfigured,
         "resource group in the settings"),
        ("get", [(200, _scale_set("Succeeded")), (404, _error("ParentResourceNotFound"))],
         ScaleSetNotFound, ""),
        ("delete", [(204, None)], ScaleSetNotFound, ""),
        ("delete", [(404, _error("ResourceNotFound"))], ScaleSetNotFound, ""),
    ],
)  # fmt: skip
async def test_a_refusal_is_asked_for_once_and_means_what_it_says_and_no_more(
    arm: Arm,
    cloud: AzureCloud,
    call: str,
    answers: list[tuple[int, object]],
    error: type[CloudError],
    message: str,
) -> None:
    for status, body in answers:
        arm.will_answer(status, body, Retry_After="30")
    with pytest.raises(CloudError) as failed:
        await getattr(cloud, call)(SPEC if call == "create" else "rk-1")

    assert type(failed.value) is error
    assert message in str(failed.value)
    assert len(arm.requests) == len(answers)
    assert all(r.query["forceDeletion"] == "true" for r in arm.requests if r.method == "DELETE")
