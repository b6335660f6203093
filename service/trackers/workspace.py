"""Sign in to the MLflow server of an Azure ML workspace, and link to its pages of runs.

As in azureml-mlflow 1.62 (`_store/azureml_reststore.py`), the calls of MLflow 2 are below
`/mlflow/v2.0`, and each has a token for Azure Resource Manager.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx
from azure.core.exceptions import AzureError

from service.trackers.tracker import TrackerError


@dataclass(frozen=True, kw_only=True)
class EntraSignIn(httpx.Auth):
    """Authentication with a token of Microsoft Entra ID, which the credential caches and renews."""

    credential: Any = field(repr=False)  # AsyncTokenCredential
    scope: str

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Sign one request. Raise TrackerError if there is no token."""
        try:
            token = await self.credential.get_token(self.scope)
        except AzureError as fault:
            name = type(fault).__name__
            raise TrackerError(f"Microsoft Entra ID gave no token: {name}") from None
        request.headers["authorization"] = f"Bearer {token.token}"
        yield request


def page_of_run(base_url: httpx.URL, run_id: str) -> str:
    """Return the address of a run in Azure ML studio."""
    workspace = base_url.path.partition("/subscriptions/")[2].rstrip("/")
    return f"https://ml.azure.com/runs/{run_id}?wsid=/subscriptions/{workspace}"
