"""Check that the service answers, accepts the key, and has the same time."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from rekindle.cli.api_client import ApiClient, require_success
from rekindle.cli.connection import ConnectionOptions, resolve_connection
from rekindle.cli.diagnostics.check import (
    CheckResult,
    doubtful_check,
    failed_check,
    passed_check,
    skipped_check,
)
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable
from rekindle.cli.job_lookup import JOBS

_SKEW_SECONDS = 30.0  # ages are visibly wrong beyond it; a busy service answers late


def service_checks(options: ConnectionOptions) -> Iterator[CheckResult]:
    """Yield all checks of the service; later ones need the earlier ones."""
    try:
        connection = resolve_connection(options, os.environ, Path.cwd())
    except CliError as error:
        if error.code == "no_service":
            yield skipped_check(
                "service", "no service is specified and no local stack is running here"
            )
        else:
            yield failed_check("service", error.message, error.advice)
        return
    with ApiClient(connection) as client:
        try:
            with client.translate_errors():
                response = client.http.get(connection.url.removesuffix("/v1") + "/readyz")
            if not (reason := _unreadiness_reason(response)):
                require_success(response)
        except ServiceUnreachable as error:
            start = "Start it (rekindle up), or" if connection.stack else "Start it, or"
            yield failed_check("service", error.message, f"{start} correct the address.")
            return
        except CliError as error:
            yield failed_check(
                "service",
                error.message,
                error.advice or "Check the address; it must end in /v1.",
            )
            return
        if reason:
            remedy = "See docs/runbook.md and the service's log."
            yield failed_check(
                "service", f"{connection.url} answers but is not ready: {reason}", remedy
            )
        else:
            yield passed_check("service", f"{connection.url} answers ({connection.source})")
        yield _check_clock(response, datetime.now(UTC))
        if not reason:
            yield _check_key(client)


def _unreadiness_reason(response: httpx.Response) -> str:
    """Return why the service says that it is not ready; "" if it is, or a gateway answered.

    A gateway may answer 503 as well, but without this body.
    """
    if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
        return ""
    try:
        body = response.json()
        return str(body.get("status") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _check_clock(response: httpx.Response, now: datetime) -> CheckResult:
    try:
        service_time = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return skipped_check("clock", "the service sent no `Date` header")
    seconds = abs((now - service_time).total_seconds())
    if seconds <= _SKEW_SECONDS:
        return passed_check("clock", "the same as the service's")
    return doubtful_check(
        "clock", f"{seconds:.0f} s apart from the service's", "Synchronise both clocks by NTP."
    )


def _check_key(client: ApiClient) -> CheckResult:
    try:
        client.get(JOBS, limit=1, tries=1)
    except CliError as error:
        remedy = error.advice or "See the service's log."
        name = "API key" if error.exit_code is ExitCode.NOT_AUTHORISED else "jobs"
        return failed_check(name, error.message, remedy)
    return passed_check("API key", f"...{client.connection.key[-4:]} is valid")
