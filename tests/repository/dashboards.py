"""Grafana dashboards in infra/monitoring; `python -m tests.repository.dashboards` writes them.

`tests/repository/test_monitoring.py` fails when a committed file differs from the generated one.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.repository.sources import ROOT

FOLDER = ROOT / "infra" / "monitoring"
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One graph: its title, unit (Grafana's name) and queries by legend."""

    title: str
    unit: str
    queries: dict[str, str]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _state(metric: str, by: str = "") -> str:
    """Return the query of a gauge that all replicas report alike, taken from one of them."""
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (max without (instance, job) ({metric}))"


def _increase(metric: str, hours: str, by: str) -> str:
    """Return the query that counts events in ``hours``.

    `increase` alone misses the first event of a new series.
    """
    return (
        f"sum by ({by}) (({metric} unless {metric} offset {hours}) or increase({metric}[{hours}]))"
    )


def _quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    rates = f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {rates})"


DASHBOARDS: dict[str, tuple[str, list[Panel]]] = {
    "fleet": (
        "Rekindle: fleet and money",
        [
            Panel("Jobs by state", "short", {"{{state}}": _state("rekindle_jobs", "state")}),
            Panel(
                "Machines",
                "short",
                {"{{vm_size}} {{region}}": _state("rekindle_machines", "vm_size, region")},
            ),
            Panel(
                "Price of what runs",
                "currencyUSD",
                {
                    "{{capacity_type}}, per hour": _state(
                        "rekindle_dollars_per_hour", "capacity_type"
                    ),
                    "the same on demand": _state("rekindle_on_demand_dollars_per_hour"),
                },
            ),
            Panel(
                "Spent per hour by ended attempts",
                "currencyUSD",
                {
                    "{{capacity_type}}": "sum by (capacity_type)"
                    " (increase(rekindle_spent_dollars_total[1h]))"
                },
            ),
            Panel(
                "Queue",
                "short",
                {"{{priority}}": _state("rekindle_queue_jobs", "priority")},
            ),
            Panel(
                "Waiting time",
                "s",
                {
                    "oldest now": _state("rekindle_queue_oldest_wait_seconds"),
                    "median of the admitted": _quantile(0.5, "rekindle_queue_wait_seconds"),
                },
            ),
            Panel("Nodes", "short", {"{{status}}": _state("rekindle_nodes", "status")}),
            Panel(
                "GPU utilization",
                "percentunit",
                {
                    "{{vm_size}}": "sum by (vm_size)"
                    " (rate(rekindle_gpu_utilization_ratio_sum[$__rate_interval]))"
                    " / sum by (vm_size)"
                    " (rate(rekindle_gpu_utilization_ratio_count[$__rate_interval]))"
                },
            ),
        ],
    ),
    "recovery": (
        "Rekindle: evictions and recovery",
        [
            Panel(
                "Outcomes of attempts per hour",
                "short",
                {"{{outcome}}": _increase("rekindle_attempt_outcomes_total", "1h", "outcome")},
            ),
            Panel(
                "Evictions per hour",
                "short",
                {
                    "{{vm_size}} {{region}}": _increase(
                        'rekindle_attempt_outcomes_total{outcome="evicted"}',
                        "1h",
                        "vm_size, region",
                    )
                },
            ),
            Panel(
                "Recovery time",
                "s",
                {
                    "median": _quantile(0.5, "rekindle_recovery_seconds"),
                    "90 %": _quantile(0.9, "rekindle_recovery_seconds"),
                },
            ),
            Panel(
                "Phases of attempts, 90 %",
                "s",
                {"{{phase}}": _quantile(0.9, "rekindle_attempt_phase_seconds", "phase")},
            ),
            Panel(
                "Goodput of ended attempts, a day",
                "percentunit",
                {"useful share of billed time": "rekindle:goodput:ratio1d"},
            ),
            Panel(
                "Lost steps per hour",
                "short",
                {"lost": "sum(increase(rekindle_lost_steps_total[1h]))"},
            ),
            Panel(
                "Broken machines per day",
                "short",
                {"unhealthy": "sum(increase(rekindle_unhealthy_nodes_total[1d]))"},
            ),
            Panel(
                "GPU errors per hour",
                "short",
                {
                    "ECC, {{kind}}": _increase("rekindle_gpu_ecc_errors_total", "1h", "kind"),
                    "Xid, {{kind}}": _increase("rekindle_gpu_xid_errors_total", "1h", "kind"),
                },
            ),
            Panel(
                "Oldest attempt by state",
                "s",
                {"{{state}}": _state("rekindle_attempt_oldest_seconds", "state")},
            ),
        ],
    ),
    "service": (
        "Rekindle: health of the service",
        [
            Panel(
                "Requests",
                "reqps",
                {"{{status}}": _rate("rekindle_http_request_seconds_count", "status")},
            ),
            Panel(
                "Request time, 99 %",
                "s",
                {
                    "{{operation}}": _quantile(0.99, "rekindle_http_request_seconds", "operation"),
                },
            ),
            Panel(
                "Event loop lag, 99 %",
                "s",
                {"{{instance}}": _quantile(0.99, "rekindle_event_loop_lag_seconds", "instance")},
            ),
            Panel(
                "Lag of reconcilers",
                "s",
                {
                    "oldest due {{kind}}": _state("rekindle_due_lag_seconds", "kind"),
                    "leased {{kind}}, 90 %": _quantile(0.9, "rekindle_lease_lag_seconds", "kind"),
                },
            ),
            Panel(
                "Steps that failed",
                "short",
                {
                    "{{loop}}": "sum by (loop)"
                    ' (rate(rekindle_reconcile_step_seconds_count{result="failed"}'
                    "[$__rate_interval]))"
                },
            ),
            Panel(
                "Calls to Azure",
                "reqps",
                {
                    "{{operation}} {{result}}": _rate(
                        "rekindle_azure_call_seconds_count", "operation, result"
                    ),
                    "deferred: {{reason}}": _rate("rekindle_azure_deferred_total", "reason"),
                },
            ),
            Panel(
                "Requests left at Azure",
                "short",
                {
                    "{{region}} {{limit}}": "min by (region, limit)"
                    " (rekindle_azure_remaining_requests)"
                },
            ),
            Panel(
                "Warnings and errors per hour",
                "short",
                {
                    "{{level}} {{event}}": _increase(
                        "rekindle_log_events_total", "1h", "level, event"
                    )
                },
            ),
        ],
    ),
}


def dashboard(name: str) -> str:
    """Return the JSON of a dashboard."""
    title, panels = DASHBOARDS[name]
    body = {
        "uid": f"rekindle-{name}",
        "title": title,
        "schemaVersion": 39,
        "tags": ["rekindle"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(body, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    targets = [
        {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(dashboard(each))
