"""Check that the service answers, accepts the key, and has the same time."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from rekindle.cli.api_client import ApiClient, require_success
from rekindle.cli.connection import ConnectionOptions, resolve_connection
from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok, skipped
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable
from rekindle.cli.job_lookup import JOBS

_SKEW_SECONDS = 30.0  # ages are visibly wrong beyond it; a busy service answers late


def checks(asked: ConnectionOptions) -> Iterator[CheckResult]:
    """Yield all checks of the service; later ones need the earlier ones."""
    try:
        found = resolve_connection(asked, os.environ, Path.cwd())
    except CliError as trouble:
        if trouble.code == "no_service":
            yield skipped("service", "no service is specified and no local stack is running here")
        else:
            yield missing("service", trouble.message, trouble.advice)
        return
    with ApiClient(found) as client:
        try:
            with client.translate_errors():
                answer = client.http.get(found.url.removesuffix("/v1") + "/readyz")
            if not (reason := _not_ready(answer)):
                require_success(answer)
        except ServiceUnreachable as trouble:
            start = "Start it (rekindle up), or" if found.stack else "Start it, or"
            yield missing("service", trouble.message, f"{start} correct the address.")
            return
        except CliError as trouble:
            yield missing(
                "service",
                trouble.message,
                trouble.advice or "Check the address; it must end in /v1.",
            )
            return
        if reason:
            remedy = "See docs/runbook.md and the service's log."
            yield missing("service", f"{found.url} answers but is not ready: {reason}", remedy)
        else:
            yield ok("service", f"{found.url} answers ({found.source})")
        yield _skew(answer, datetime.now(UTC))
        if not reason:
            yield _key(client)


def _not_ready(answer: httpx.Response) -> str:
    """Return why the service says that it is not ready; "" if it is, or a gateway answered.

    A gateway may answer 503 as well, but without this body.
    """
    if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
        return ""
    try:
        body = answer.json()
        return str(body.get("status") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _skew(answer: httpx.Response, now: datetime) -> CheckResult:
    try:
        theirs = parsedate_to_datetime(answer.headers["date"])
    except (KeyError, ValueError):
        return skipped("clock", "the service sent no `Date` header")
    apart = abs((now - theirs).total_seconds())
    if apart <= _SKEW_SECONDS:
        return ok("clock", "the same as the service's")
    return doubt(
        "clock", f"{apart:.0f} s apart from the service's", "Synchronise both clocks by NTP."
    )


def _key(client: ApiClient) -> CheckResult:
    try:
        client.get(JOBS, limit=1, tries=1)
    except CliError as trouble:
        remedy = trouble.advice or "See the service's log."
        named = "API key" if trouble.exit_code is ExitCode.NOT_AUTHORISED else "jobs"
        return missing(named, trouble.message, remedy)
    return ok("API key", f"...{client.connection.key[-4:]} is valid")
