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
    TIMEOUT_SECONDS,
    ArmClient,
    arm_endpoint,
    error_message,
    first_line,
    parse_object_id,
    request_token,
)
from rekindle.cli.diagnostics.check import (
    CheckResult,
    doubtful_check,
    failed_check,
    passed_check,
    skipped_check,
)

_LIMIT = 4 * TIMEOUT_SECONDS  # timeout of one check with all its requests
AzureCheck = Callable[[ArmClient], Iterable[CheckResult]]
AZURE_CHECKS: dict[str, AzureCheck] = {  # by the name to show if the check itself fails
    "resource group": check_roles.check_group_roles,
    "roles of the subscription": check_roles.check_subscription_role,
    "role Managed Identity Operator": check_roles.check_identity_role,
    "providers": check_subscription.check_providers,
    "sizes and quota": check_subscription.check_sizes,
    "VM image": check_subscription.check_image,
    "Azure ML": check_azureml.workspace_checks,
    "encryption": check_subscription.check_encryption,
    "subnet": check_network.check_subnet,
    "storage firewall": check_network.check_storage_firewall,
    "public URL": check_network.check_public_url,
    "clock of Azure": check_network.check_clock,
}


def azure_checks(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield all checks of settings and Azure; Azure is skipped without a subscription."""
    yield from check_settings.settings_checks(environment)
    if not environment.get("REKINDLE_AZURE_SUBSCRIPTION_ID"):
        why = "REKINDLE_AZURE_SUBSCRIPTION_ID is not set; Azure is not checked"
        yield skipped_check("Azure", why)
        return
    yield check_network.check_trainer_image(environment.get("REKINDLE_TRAINER_IMAGE", ""))
    yield from subscription_checks(environment)


def subscription_checks(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Sign in as the service does and yield all checks of Azure."""
    try:
        token = request_token(environment)
    except Exception as error:  # noqa: BLE001 - azure.identity raises more than it documents
        yield failed_check(
            "Azure sign-in", first_line(error), "Correct the credentials, or run: az login"
        )
        return
    yield passed_check("Azure sign-in", "received a token")
    trust = ssl.create_default_context(cafile=environment.get("REKINDLE_AZURE_CA") or None)
    subscription = environment["REKINDLE_AZURE_SUBSCRIPTION_ID"]
    base = f"{arm_endpoint(environment)}/subscriptions/{subscription}"
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(
        base_url=base, headers=headers, verify=trust, timeout=TIMEOUT_SECONDS
    ) as http:
        yield from run_checks(ArmClient(http, subscription, environment, parse_object_id(token)))


def run_checks(
    azure: ArmClient, limit: float = _LIMIT, selected: Mapping[str, AzureCheck] = AZURE_CHECKS
) -> Iterator[CheckResult]:
    """Run all checks in parallel; a failed or slow check does not stop the others."""
    pool = ThreadPoolExecutor(len(selected))
    futures = {
        name: pool.submit(lambda check: list(check(azure)), check)
        for name, check in selected.items()
    }
    for name, future in futures.items():
        yield from _check_result(name, future, limit)
    pool.shutdown(wait=False, cancel_futures=True)


def _check_result(
    name: str, future: "Future[list[CheckResult]]", limit: float
) -> Iterable[CheckResult]:
    remedy = "Run it again, or query Azure directly: az rest --method get --url URL --debug"
    try:
        return future.result(limit)
    except TimeoutError:
        return [doubtful_check(name, f"Azure did not answer within {limit:.0f} s", remedy)]
    except httpx.HTTPError as error:
        return [doubtful_check(name, f"cannot be read: {error_message(error)}", remedy)]
    except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
        return [doubtful_check(name, f"unexpected response: {first_line(error)}", remedy)]
