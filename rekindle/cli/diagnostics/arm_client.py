"""Client of Azure Resource Manager for `rekindle doctor`, signed in as the service."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT_SECONDS = 15.0  # timeout of one request


@dataclass(frozen=True)
class ArmClient:
    """ARM client of one subscription, and the service's settings."""

    http: httpx.Client
    subscription: str
    settings: Mapping[str, str]
    object_id: str = "OBJECT_ID"  # of the signed-in identity

    @property
    def group(self) -> str:
        """Resource group of the scale sets."""
        return self.setting("AZURE_RESOURCE_GROUP")

    @property
    def offerings(self) -> list[tuple[str, str, bool]]:
        """Size, region, and whether it is Spot, of each scale set offering."""
        return [offering for offering, cluster in self._offerings if not cluster]

    @property
    def clusters(self) -> list[tuple[str, str, bool]]:
        """Size, region, and whether it is Spot, of each Azure ML offering."""
        return [offering for offering, cluster in self._offerings if cluster]

    @property
    def named_clusters(self) -> list[tuple[str, str, bool, str]]:
        """The Azure ML offerings that name an existing cluster, with its name."""
        named = [(*offering, c.partition("=")[2]) for offering, c in self._offerings if c]
        return [cluster for cluster in named if cluster[3]]

    @property
    def _offerings(self) -> list[tuple[tuple[str, str, bool], str]]:
        """Each offering with "azureml", "azureml=NAME", or "" for a scale set."""
        offerings = []
        for text in filter(None, map(str.strip, self.setting("OFFERINGS").split(","))):
            size, _, location = text.partition("@")
            region, *options = location.split(":")
            cluster = next((w for w in options if w.partition("=")[0] == "azureml"), "")
            offerings.append(((size, region, "on_demand" not in options), cluster))
        return offerings

    @property
    def regions(self) -> list[str]:
        """Distinct regions of the scale set offerings."""
        return list(dict.fromkeys(region for _, region, _ in self.offerings))

    def in_regions(self, template: str) -> list[str]:
        """Return the distinct resource ids of a template in which {region} is replaced."""
        return list(dict.fromkeys(template.replace("{region}", r) for r in self.regions))

    def policy(self, member: str) -> Any:  # noqa: ANN401 - a member of any type
        """Return a member of REKINDLE_AZURE_POLICY, or None."""
        return json.loads(self.setting("AZURE_POLICY") or "{}").get(member)

    def setting(self, name: str) -> str:
        """Return a setting of the service; "" if it is not set."""
        return self.settings.get(f"REKINDLE_{name}", "")

    def get(self, path: str, version: str, **query: str) -> Any:  # noqa: ANN401 - JSON
        """Return what ARM answers below the subscription; raise httpx.HTTPError."""
        query["api-version"] = version
        return self.http.get(path, params=query).raise_for_status().json()

    def get_resource(self, resource_id: str, version: str) -> Any:  # noqa: ANN401 - JSON
        """Return what ARM answers for a resource id; raise httpx.HTTPError."""
        return self.get(str(self.http.base_url.copy_with(path=resource_id)), version)

    def role_assignment_command(self, role: str, scope: str) -> str:
        """Return the command that grants a role to the signed-in identity."""
        return (
            f"Run: az role assignment create --assignee-object-id {self.object_id}"
            f" --assignee-principal-type ServicePrincipal --role '{role}' --scope {scope}"
        )


def parse_object_id(token: str) -> str:
    """Return the object id in a token, which ARM itself verifies."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims["oid"])
    except (IndexError, KeyError, ValueError):
        return "OBJECT_ID"


def request_token(environment: Mapping[str, str]) -> str:
    """Sign in as the service does and return an ARM token."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    url, ca = arm_endpoint(environment), environment.get("REKINDLE_AZURE_CA")
    options: dict[str, Any] = (
        {"authority": url, "disable_instance_discovery": True, "connection_verify": ca}
        if ca
        else {}
    )
    secret = environment.get("REKINDLE_AZURE_CLIENT_SECRET", "")
    credential: Any = (
        ClientSecretCredential(
            environment.get("REKINDLE_AZURE_TENANT_ID", ""),
            environment.get("REKINDLE_AZURE_CLIENT_ID", ""),
            secret,
            **options,
        )
        if secret
        else DefaultAzureCredential()
    )
    return str(credential.get_token(f"{url}/.default").token)


def arm_endpoint(environment: Mapping[str, str]) -> str:
    """Return the address of ARM."""
    return environment.get("REKINDLE_AZURE_ENDPOINT") or "https://management.azure.com"


def error_message(error: Exception) -> str:
    """Return Azure's error message, or the error's first line if there is none."""
    if isinstance(error, httpx.HTTPStatusError):
        try:
            return str(error.response.json()["error"]["message"]).splitlines()[0]
        except (ValueError, KeyError, TypeError, IndexError):
            return f"ARM answered {error.response.status_code}"
    return first_line(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
