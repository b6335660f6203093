"""Which api-versions, providers and types there are, and Azure's refusal of all others.

Any version between a provider's first one and a year from now is taken: nobody lists them all.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from starlette.requests import Request

from emulator.core.catalog import catalog
from emulator.core.errors import ArmError, invalid

VERSION = re.compile(r"(20\d\d-\d\d-\d\d)(?:-[a-zA-Z][\w.]*)?")
PROVIDED = re.compile(r"/providers/([^/]+)(?:/([^/]+))?", re.IGNORECASE)
LOCATION = re.compile(r"/locations/([^/]+)", re.IGNORECASE)
FIRST = {"microsoft.compute": "2015-06-15"}
OLDEST = "2014-04-01"  # of everything else
NEWEST = "2026-04-01"  # as an answer to an unknown version names it


class Types:
    """The resource types that this emulator answers for."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._types: dict[str, set[str]] = {}
        for path in paths:
            for namespace, kind in PROVIDED.findall(path.lower()):
                self._types.setdefault(namespace, set()).add(kind)
        anywhere = [n for n in self._types if n.startswith("{")]  # e.g. {namespace}/register
        self._anywhere = set().union(*(self._types.pop(n) for n in anywhere))

    def check(self, request: Request, now: float) -> None:
        """Raise ArmError for a provider, a type or an api-version that Azure does not have."""
        version = request.query_params.get("api-version", "")
        if not version:
            raise invalid(
                "The api-version query parameter (?api-version=) is required for all requests.",
                "MissingApiVersionParameter",
            )
        matches = PROVIDED.findall(request.url.path)
        if not matches:
            if not _is_known(version, OLDEST, now):
                raise invalid(
                    f"The api-version '{version}' is invalid. The supported versions are "
                    f"'{NEWEST},{OLDEST}'.",
                    "InvalidApiVersionParameter",
                )
            return
        namespace, kind = matches[-1]
        if kind and kind.lower() not in self._anywhere:
            self._check_type(namespace, kind, version)
        first = FIRST.get(namespace.lower(), OLDEST)
        if not _is_known(version, first, now):
            location = LOCATION.search(request.url.path)
            raise invalid(
                "No registered resource provider found for location "
                f"'{location[1] if location else ''}' and API version '{version}' for type "
                f"'{kind}'. The supported api-versions are '{first}, {NEWEST}'. The supported "
                f"locations are '{', '.join(sorted(catalog().locations))}'.",
                "NoRegisteredProviderFound",
            )

    def _check_type(self, namespace: str, kind: str, version: str) -> None:
        kinds = self._types.get(namespace.lower())
        if kinds is None:
            text = f"The resource namespace '{namespace}' is invalid."
            raise ArmError(404, "InvalidResourceNamespace", text)
        if kind.lower() not in kinds:
            raise ArmError(
                404,
                "InvalidResourceType",
                f"The resource type '{kind}' could not be found in the namespace '{namespace}' "
                f"for api version '{version}'.",
            )


def _is_known(version: str, first: str, now: float) -> bool:
    match = VERSION.fullmatch(version)
    latest = datetime.fromtimestamp(now, UTC) + timedelta(days=365)
    return match is not None and first <= match[1] <= latest.date().isoformat()
