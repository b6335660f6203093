"""Create what the service needs in the emulated subscription."""

import ssl

import httpx

from contract.choices import Engine
from rekindle.local.layout import (
    CLIENT,
    REGION,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    TENANT,
    WORKSPACE,
    StackLayout,
)

GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
SPACE = f"{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"


async def prepare_subscription(layout: StackLayout) -> None:
    """Create the resource group and, if its engine is used, the Azure ML workspace.

    Repeating is harmless.
    """
    context = ssl.create_default_context(cafile=layout.ca)
    async with httpx.AsyncClient(base_url=layout.arm_url, verify=context, trust_env=False) as http:
        form = {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_secret": layout.client_secret,
            "scope": f"{layout.arm_url}/.default",
        }
        token = (await http.post(f"/{TENANT}/oauth2/v2.0/token", data=form)).raise_for_status()
        resources = [(GROUP, "2021-04-01")]
        resources += [(SPACE, "2023-08-01-preview")] if Engine.AZUREML in layout.engines else []
        for path, version in resources:
            answer = await http.put(
                path,
                params={"api-version": version},
                headers={"Authorization": f"Bearer {token.json()['access_token']}"},
                json={"location": REGION},
            )
            answer.raise_for_status()
