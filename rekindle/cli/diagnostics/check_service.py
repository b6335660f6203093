"""Whether the service answers, knows the key and has the same time."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from rekindle.cli.api_client import Client, checked
from rekindle.cli.connection import Asked, connect
from rekindle.cli.diagnostics.check import Check, doubt, missing, ok, skipped
from rekindle.cli.errors import ExitCode, Trouble, Unreachable
from rekindle.cli.job_lookup import JOBS

_SKEW_SECONDS = 30.0  # ages are shown wrongly beyond it; a busy service tells its time late


def checks(asked: Asked) -> Iterator[Check]:
    """Line by line; what cannot be known without the line before is skipped."""
    try:
        found = connect(asked, os.environ, Path.cwd())
    except Trouble as trouble:
        if trouble.code == "no_service":
            yield skipped("service", "none is named and no local stack runs here")
        else:
            yield missing("service", trouble.message, trouble.advice)
        return
    with Client(found) as client:
        try:
            with client.translated():
                answer = client.http.get(_root(found.url) + "/readyz")
            if not (reason := _not_ready(answer)):
                checked(answer)
        except Unreachable as trouble:
            start = "Start it (rekindle up), or" if found.stack else "Start it, or"
            yield missing("service", trouble.message, f"{start} mend the address.")
            return
        except Trouble as trouble:
            yield missing(
                "service", trouble.message, trouble.advice or "Check the address: it ends in /v1."
            )
            return
        if reason:
            remedy = "If it does not say what to do: docs/runbook.md, and the service's log."
            yield missing("service", f"{found.url} answers, and cannot work: {reason}", remedy)
        else:
            yield ok("service", f"{found.url} answers ({found.source})")
        yield _skew(answer, datetime.now(UTC))
        if not reason:
            yield _key(client)


def _not_ready(answer: httpx.Response) -> str:
    """Why the service itself says that it cannot do its work; "" where it can, or nothing said so.

    A gateway in its place says 503 as well, but not in these words.
    """
    if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
        return ""
    try:
        body = answer.json()
        return str(body.get("status") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _skew(answer: httpx.Response, now: datetime) -> Check:
    try:
        theirs = parsedate_to_datetime(answer.headers["date"])
    except (KeyError, ValueError):
        return skipped("clock", "the service does not say its time")
    apart = abs((now - theirs).total_seconds())
    if apart <= _SKEW_SECONDS:
        return ok("clock", "the same as the service's")
    return doubt("clock", f"{apart:.0f} s apart from the service's", "Let both keep time by NTP.")


def _key(client: Client) -> Check:
    try:
        client.get(JOBS, limit=1, tries=1)
    except Trouble as trouble:
        remedy = trouble.advice or "The service's log says more."
        named = "API key" if trouble.exit_code is ExitCode.NOT_AUTHORISED else "jobs"
        return missing(named, trouble.message, remedy)
    return ok("API key", f"...{client.connection.key[-4:]} is valid")


def _root(url: str) -> str:
    return url.removesuffix("/v1")
