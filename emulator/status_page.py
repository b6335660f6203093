"""`/`: what there is, for people."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import islice

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from emulator.fabric import Fabric
from emulator.front_door import fabric_of
from emulator.state import Instance
from emulator.views import power
from emulator.weather.traces import at

ROWS = 50  # of each table
STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em}"
    "table{border-collapse:collapse;margin:.5em 0 2em}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}"
)
Rows = Iterable[Sequence[object]]


async def show(request: Request) -> Response:
    """Groups, scale sets, VMs, weather, operations, faults, capacity and the last requests."""
    fabric = fabric_of(request)
    state, now = fabric.state, fabric.now()
    parts = [
        f"<!doctype html><title>Azure on localhost</title><style>{STYLE}</style>",
        f"<h1>Azure on localhost</h1><p>It is {_time(now)}. VMs: {_summary(fabric)}.</p>",
        _table(
            "Resource groups",
            ("name", "region", "state"),
            ((g.name, g.location, "Deleting" if g.deleting else "") for g in state.groups.values()),
        ),
        _table(
            "Scale sets",
            ("name", "group", "region", "size", "capacity", "VMs", "state"),
            (
                (
                    s.name,
                    s.group,
                    s.location,
                    s.vm_size,
                    s.capacity,
                    len(s.instances),
                    s.provisioning_state,
                )
                for s in state.scale_sets.values()
            ),
        ),
    ]
    return HTMLResponse("".join([*parts, *_machines(fabric, now), *_happenings(fabric, now)]))


def _machines(fabric: Fabric, now: float) -> list[str]:
    return [
        _table(
            "Virtual machines",
            ("vm", "scale set", "state", "announced to it", "address"),
            (
                (
                    s.vm_name(i),
                    s.name,
                    power(fabric, i) or "creating",
                    ", ".join(_announced(i)),
                    i.address,
                )
                for s, i in fabric.instances()
            ),
        ),
        _table(
            "Weather",
            ("region", "zone", "size", "for", "kind", "machines now"),
            (
                (
                    sky.region or "any",
                    sky.zone or "any",
                    sky.size or "any",
                    "Spot" if sky.spot else "Regular",
                    sky.entry["kind"],
                    at(sky.trace(sky.region, sky.size), now),
                )
                for sky in fabric.weather.skies
            ),
        ),
    ]


def _announced(instance: Instance) -> list[str]:
    return ["Preempt"] * bool(instance.eviction) + [e["kind"] for e in instance.maintenance]


def _happenings(fabric: Fabric, now: float) -> list[str]:
    state = fabric.state
    return [
        _table(
            "Operations under way",
            ("kind", "on", "due in s"),
            ((o.kind, o.target, round(o.due_at - now, 1)) for o in fabric.under_way()),
        ),
        _table(
            "Faults",
            ("kind", "method", "path", "struck", "of"),
            (
                (f.kind, f.method, f.path, f.struck, f.count or "any number")
                for f in state.faults.values()
            ),
        ),
        _table("Capacity left", ("place", "instances"), state.capacity.items()),
        _table(
            "Last requests",
            ("at", "who", "what", "status", "ms"),
            (
                (_time(e.at), e.principal, f"{e.method} {e.path}", e.status, e.ms)
                for e in reversed(fabric.requests.entries)
            ),
        ),
    ]


def _summary(fabric: Fabric) -> str:
    states = Counter(i.doom or i.phase for _, i in fabric.instances())
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"


def _table(title: str, head: Sequence[str], rows: Rows) -> str:
    shown = list(islice(rows, ROWS + 1))
    lines = [_line("th", head), *(_line("td", row) for row in shown[:ROWS])]
    more = "<p>There are more.</p>" if len(shown) > ROWS else ""
    none = "" if shown else "<p>None.</p>"
    return f"<h2>{escape(title)}</h2><table>{''.join(lines)}</table>{none}{more}"


def _line(cell: str, row: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(str(v))}</{cell}>" for v in row) + "</tr>"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
