"""Measures with bars, computed from the findings of a run."""

import math
from collections.abc import Mapping, Sequence

from bench.report import Measure, percentile, rounded
from bench.scale.run import ScaleFindings, Window

HOUR = 3600.0
SERVICE = ("api", "reconciler", "postgres")


def measures(findings: ScaleFindings) -> list[Measure]:
    """Return all measures, in the order of the design document."""
    last = findings.windows[-1] if findings.windows else None
    return [
        _plain("live_jobs", last.jobs if last else None, "", bar=5000, higher_is_better=True),
        _plain("nodes", last.nodes if last else None, "", bar=10_000, higher_is_better=True),
        *(_heartbeats(last, findings) if last else ()),
        *_floods(findings),
        *_bursts(findings),
        *_submits(findings),
        *(_memory(last, findings) if last else ()),
        _plain("growth_exponent", rounded(exponent(findings.windows), 3), "", bar=0.1),
        _plain("arm_calls_per_node_hour", _arm(last) if last else None, "1/h"),
        _plain("cpu_per_node", _per_node(last) if last else None, "us/s"),
    ]


def exponent(windows: Sequence[Window]) -> float | None:
    """Return the growth of the CPU per job with the number of jobs: 0 for constant cost per job.

    It is the slope of log(CPU per job) over log(jobs), by least squares. None with fewer than two
    windows.
    """
    points = [(math.log(w.jobs), math.log(w.service_cpu / w.jobs)) for w in windows]
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)


def scaled(count: float, seconds: float, to: int) -> float:
    """Return the seconds for ``to`` items, from ``count`` items in ``seconds``."""
    return round(seconds * to / count, 2)


def _heartbeats(last: Window, findings: ScaleFindings) -> list[Measure]:
    rate = round(len(last.took) / last.seconds, 1)
    took = [seconds * 1000 for seconds in last.took]
    limit = findings.bare_tps and round(findings.bare_tps)
    bare = {"pgbench": limit}
    return [
        Measure(
            name="heartbeats_per_s",
            value=rate,
            unit="1/s",
            bar=1000,
            limit=limit,
            rivals=bare,
            higher_is_better=True,
        ),
        _plain("heartbeat_p50_ms", rounded(percentile(took, 50), 1), "ms"),
        _plain("heartbeat_p99_ms", rounded(percentile(took, 99), 1), "ms", bar=200),
        _plain("heartbeats_failed", last.failed, "", bar=0),
    ]


def _floods(findings: ScaleFindings) -> list[Measure]:
    if findings.flood is None:
        return []
    count, seconds, cpu = findings.flood
    return [
        _plain("heartbeats_flood_per_s", round(count / seconds, 1), "1/s", higher_is_better=True),
        _plain("cpu_us_per_heartbeat", _us(cpu, count, *SERVICE), "us"),
        _plain("cpu_us_per_heartbeat_api", _us(cpu, count, "api"), "us"),
        _plain("cpu_us_per_heartbeat_postgres", _us(cpu, count, "postgres"), "us"),
    ]


def _bursts(findings: ScaleFindings) -> list[Measure]:
    """Return the measures of evictions and cancels.

    Values are scaled in proportion where fewer were evicted or cancelled than the name says.
    """
    results = []
    if findings.burst:
        count, seconds, cpu = findings.burst
        used = sum(cpu[name] for name in SERVICE)
        results += [
            _plain("eviction_burst_s", scaled(count, seconds, 10_000), "s", bar=60),
            _plain("eviction_burst_cpu_s", scaled(count, used, 10_000), "s"),
            _plain("notice_to_decision_s_p99", rounded(findings.decided_p99, 2), "s", bar=2),
        ]
    if findings.cancel:
        jobs, accepted_s, cancelled_s, cpu = findings.cancel
        used = sum(cpu[name] for name in SERVICE)
        results += [
            _plain("cancel_2000_s", scaled(jobs, cancelled_s, 2000), "s"),
            _plain("cancel_2000_accepted_s", scaled(jobs, accepted_s, 2000), "s"),
            _plain("cancel_2000_cpu_s", scaled(jobs, used, 2000), "s"),
        ]
    return results


def _submits(findings: ScaleFindings) -> list[Measure]:
    if not findings.submitted:
        return []
    jobs, seconds = (sum(values) for values in zip(*findings.submitted, strict=True))
    return [_plain("submit_10000_s", scaled(jobs, seconds, 10_000), "s")]


def _memory(last: Window, findings: ScaleFindings) -> list[Measure]:
    return [_plain("kib_per_job", round((last.kib - findings.kib_empty) / last.jobs, 1), "KiB")]


def _arm(window: Window) -> float:
    return round(window.arm / window.nodes / window.seconds * HOUR, 2)


def _per_node(window: Window) -> float:
    return round(window.service_cpu / window.nodes * 1e6, 1)


def _us(cpu: Mapping[str, float], count: int, *parts: str) -> float:
    return round(sum(cpu[name] for name in parts) / max(count, 1) * 1e6, 1)


def _plain(
    name: str,
    value: float | None,
    unit: str,
    *,
    bar: float | None = None,
    higher_is_better: bool = False,
) -> Measure:
    return Measure(name=name, value=value, unit=unit, bar=bar, higher_is_better=higher_is_better)
