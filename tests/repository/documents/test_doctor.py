"""`rekindle doctor` checks exactly the actions that the role in infra grants."""

import json
from pathlib import Path

from rekindle.cli.diagnostics import check_roles

TEMPLATE = json.loads((Path(__file__).parents[3] / "infra" / "main.json").read_text())


def test_the_doctor_checks_every_action_of_the_services_role() -> None:
    (role,) = (r for r in TEMPLATE["resources"] if r["type"].endswith("/roleDefinitions"))
    checked = {*check_roles.MACHINES, *check_roles.AUDIT, check_roles.JOIN, check_roles.ASSIGN}

    assert checked == set(role["properties"]["permissions"][0]["actions"])
