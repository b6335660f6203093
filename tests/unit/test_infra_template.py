"""What the template of `infra/` asks of a database that must not fill up."""

import json
from pathlib import Path

TEMPLATE = json.loads((Path(__file__).parents[2] / "infra" / "main.json").read_text())


def test_the_database_grows_before_its_disk_is_full() -> None:
    """Azure makes a full one read-only."""
    (server,) = (r for r in TEMPLATE["resources"] if r["type"].endswith("/flexibleServers"))

    assert server["properties"]["storage"]["autoGrow"] == "Enabled"
