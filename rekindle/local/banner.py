"""What `make up` prints when the stack is ready: addresses, and exports for a shell."""

from pathlib import Path

from rekindle.local.layout import CLIENT, RESOURCE_GROUP, TENANT, StackLayout


def banner(layout: StackLayout, api_key: str, sign_in: str) -> str:
    """Return addresses, sign-in link, API key, and exports for clients, staging and `az`."""
    return f"""
Rekindle is up. State in {_short(layout.state.path)}, logs in {_short(layout.state / "logs")}, \
Ctrl-C stops the stack.

  Console         {layout.api_url}/#sign-in={sign_in}  (valid once, for 10 minutes)
  API             {layout.api_url}/v1
  Azure (ARM)     {layout.arm_url}
  Blob (Azurite)  {layout.blob_url}
  Metadata (VMs)  {layout.metadata_url}

For the openai client and curl:
  export OPENAI_BASE_URL={layout.api_url}/v1 OPENAI_API_KEY={api_key}

To stage another base model (python -m rekindle.stage):
  export REKINDLE_STORAGE='{layout.storage}'

For az:
  export AZURE_CONFIG_DIR={layout.state / "az"} REQUESTS_CA_BUNDLE={layout.ca}
  export AZURE_CORE_INSTANCE_DISCOVERY=false AZURE_CORE_COLLECT_TELEMETRY=false
  az cloud register -n rekindle --endpoint-resource-manager {layout.arm_url}
  az cloud set -n rekindle
  az login --service-principal -u {CLIENT} -p {layout.client_secret} --tenant {TENANT}
  az vmss list -g {RESOURCE_GROUP} -o table
"""


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
