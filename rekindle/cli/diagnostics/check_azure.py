"""Check that the configured subscription has what the service needs.

Settings come from the environment as for the service, facts from ARM. check_settings.py validates
the settings and checks database and storage.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from rekindle.cli.diagnostics import (
    check_azureml,
    check_network,
    check_roles,
    check_settings,
    check_subscription,
)
from rekindle.cli.diagnostics.arm_client import (
    SECONDS,
    ArmClient,
    endpoint,
    first_line,
    object_id,
    said,
    token,
)
from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok, skipped

_LIMIT = 4 * SECONDS  # timeout of one check with all its requests
Look = Callable[[ArmClient], Iterable[CheckResult]]
LOOKS: dict[str, Look] = {  # by the name to show if the check itself fails
    "resource group": check_roles.group,
    "roles of the subscription": check_roles.subscription,
    "role Managed Identity Operator": check_roles.identity,
    "providers": check_subscription.providers,
    "sizes and quota": check_subscription.sizes,
    "VM image": check_subscription.image,
    "Azure ML": check_azureml.checks,
    "encryption": check_subscription.encryption,
    "subnet": check_network.subnet,
    "storage firewall": check_network.storage,
    "public URL": check_network.public_url,
    "clock of Azure": check_network.clock,
}


def checks(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield all checks of settings and Azure; Azure is skipped without a subscription."""
    yield from check_settings.checks(environment)
    if not environment.get("REKINDLE_AZURE_SUBSCRIPTION_ID"):
        why = "REKINDLE_AZURE_SUBSCRIPTION_ID is not set; the service runs elsewhere"
        yield skipped("ArmClient", why)
        return
    yield check_network.trainer_image(environment.get("REKINDLE_TRAINER_IMAGE", ""))
    yield from on_azure(environment)


def on_azure(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Sign in as the service does and yield all checks of Azure."""
    try:
        given = token(environment)
    except Exception as error:  # noqa: BLE001 - azure.identity raises more than it documents
        yield missing(
            "Azure sign-in", first_line(error), "Correct the credentials, or run: az login"
        )
        return
    yield ok("Azure sign-in", "received a token")
    trust = ssl.create_default_context(cafile=environment.get("REKINDLE_AZURE_CA") or None)
    subscription = environment["REKINDLE_AZURE_SUBSCRIPTION_ID"]
    base = f"{endpoint(environment)}/subscriptions/{subscription}"
    headers = {"authorization": f"Bearer {given}"}
    with httpx.Client(base_url=base, headers=headers, verify=trust, timeout=SECONDS) as http:
        yield from looks(ArmClient(http, subscription, environment, object_id(given)))


def looks(
    azure: ArmClient, limit: float = _LIMIT, every: Mapping[str, Look] = LOOKS
) -> Iterator[CheckResult]:
    """Run all checks in parallel; a failed or slow check does not stop the others."""
    pool = ThreadPoolExecutor(len(every))
    made = {name: pool.submit(lambda look: list(look(azure)), look) for name, look in every.items()}
    for name, future in made.items():
        yield from _result(name, future, limit)
    pool.shutdown(wait=False, cancel_futures=True)


def _result(name: str, future: "Future[list[CheckResult]]", limit: float) -> Iterable[CheckResult]:
    again = "Run it again, or query Azure directly: az rest --method get --url URL --debug"
    try:
        return future.result(limit)
    except TimeoutError:
        return [doubt(name, f"Azure did not answer within {limit:.0f} s", again)]
    except httpx.HTTPError as error:
        return [doubt(name, f"cannot be read: {said(error)}", again)]
    except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
        return [doubt(name, f"unexpected response: {first_line(error)}", again)]
