"""Metrics, alerts and dashboards name what exists: metrics, runbook sections, generated files."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.instruments import DECLARED, MetricType
from tests.repository import dashboards
from tests.repository.sources import text

ALERTS = dashboards.FOLDER / "alerts.yml"
PROMTOOL = shutil.which("promtool")
RECORDED = "rekindle:goodput:ratio1d"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def series() -> set[str]:
    """Return the names of all time series that a query may use."""
    parts = ("_bucket", "_sum", "_count")
    histograms = {
        f"{n}{p}" for n, d in DECLARED.items() if d.kind is MetricType.HISTOGRAM for p in parts
    }
    plain = {name for name, d in DECLARED.items() if d.kind is not MetricType.HISTOGRAM}
    return histograms | plain | {RECORDED}


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub creates for a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text(Path(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def asked_for(expression: str) -> set[str]:
    return set(re.findall(r"\brekindle[\w:]*", re.sub(r'"[^"]*"', "", expression)))


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_a_dashboard_is_what_its_code_says_and_asks_for_metrics_that_exist(name: str) -> None:
    panels = dashboards.DASHBOARDS[name][1]
    queried = {s for panel in panels for query in panel.queries.values() for s in asked_for(query)}

    assert (dashboards.FOLDER / f"{name}.json").read_text() == dashboards.dashboard(name), (
        "make docs"
    )
    assert queried - series() == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_metrics_that_exist_and_leads_to_a_section_of_the_runbook(
    rule: dict[str, Any],
) -> None:
    assert asked_for(rule["expr"]) - series() == set()
    if "alert" in rule:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "https://DOCS/runbook.md"
        assert "{{" in anchor or anchor in anchors("docs/runbook.md")


def test_every_alert_has_a_unit_test() -> None:
    tests = yaml.safe_load((dashboards.FOLDER / "alerts_test.yml").read_text())["tests"]
    tested = {case["alertname"] for test in tests for case in test["alert_rule_test"]}

    assert {rule["alert"] for rule in rules() if "alert" in rule} == tested


def test_the_rules_do_what_their_unit_tests_say_where_promtool_is_installed() -> None:
    if PROMTOOL is None:  # then the tests above are all there is
        return
    commands = (
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "--syntax-only", "prometheus.local.yml"],
    )
    for command in commands:
        process = subprocess.run(
            [PROMTOOL, *command], cwd=dashboards.FOLDER, capture_output=True, check=False
        )
        assert process.returncode == 0, process.stdout + process.stderr
