"""What the template of `infra/` asks for: a database that must not fill up, secrets in a vault."""

import json
from pathlib import Path

TEMPLATE = json.loads((Path(__file__).parents[3] / "infra" / "main.json").read_text())


def test_the_database_grows_before_its_disk_is_full() -> None:
    """Azure makes a full one read-only."""
    (server,) = (r for r in TEMPLATE["resources"] if r["type"].endswith("/flexibleServers"))

    assert server["properties"]["storage"]["autoGrow"] == "Enabled"


def test_the_second_secret_of_a_rotation_is_in_the_vault_once_it_is_given() -> None:
    """Azure refuses a secret without a value."""
    rules = TEMPLATE["parameters"]["acceptedSecretKey"]
    (secret,) = (
        r for r in TEMPLATE["resources"] if "/rekindle-accepted-secret-key'" in r.get("name", "")
    )

    assert (rules["type"], rules["defaultValue"]) == ("securestring", "")
    assert secret["condition"] == "[not(empty(parameters('acceptedSecretKey')))]"
    assert secret["properties"]["value"] == "[parameters('acceptedSecretKey')]"
