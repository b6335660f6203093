"""Benchmark of the Azure emulator: start time, memory, idle CPU and requests per second.

Run it with `python -m bench.emulator [--machines N] [--requests N] [--json [FILE]]`. It starts an
emulator whose VMs run no processes, creates N VMs, and sends requests over one connection. CPU is
that of the emulator process. The client's own speed also limits the requests per second.
"""

import http.client
import json
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil

from bench import report
from bench.report import CannotMeasure, Measure, print_progress

TENANT = "11111111-1111-1111-1111-111111111111"
GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/bench"
SETS = GROUP + "/providers/Microsoft.Compute/virtualMachineScaleSets"
VERSION = "?api-version=2026-04-01"
LARGEST_SET = 100
IDLE_SECONDS = 5.0
TIMEOUT = 120.0  # seconds
READY = "emulator ready:"


@dataclass
class Running:
    """A running emulator, its start time in seconds, and a connection to each of its two ports."""

    process: psutil.Process
    start_seconds: float
    arm: http.client.HTTPConnection
    metadata: http.client.HTTPConnection
    token: str = ""

    def request(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send one ARM request and return the JSON of the answer."""
        text = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return _answer(self.arm, method, path, text, headers)

    def events(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Send the metadata request that a VM repeats, and return the JSON of the answer."""
        return _answer(self.metadata, "GET", path, None, {"Metadata": "true"})


def main() -> int:
    """Run the benchmark, print its measures and return the exit status."""
    parser = report.option_parser("emulator", __doc__)
    parser.add_argument("--machines", type=int, default=5000, help="Number of VMs (5000).")
    parser.add_argument("--requests", type=int, default=500, help="Requests of each kind (500).")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as folder:
        results = run(Path(folder), options.machines, options.requests)
    arguments = {"machines": options.machines, "requests": options.requests}
    report.publish("emulator", results, options.json, arguments=arguments)
    return 0


def run(folder: Path, machines: int, requests: int) -> list[Measure]:
    """Return all measures of an emulator with its state in ``folder``."""
    with _emulator(folder) as emulator:
        results = [Measure(name="start", value=round(emulator.start_seconds, 2), unit="s", bar=2)]
        print_progress(f"filling it with {machines} VMs")
        sets = _fill(emulator, machines)
        results += _weight(emulator, machines)
        for name, act in _calls(emulator, sets).items():
            results += _rate(emulator, name, act, requests)
    with _emulator(folder) as emulator:
        seconds = round(emulator.start_seconds, 2)
    return [*results, Measure(name=f"start_with_{machines}_vms", value=seconds, unit="s", bar=2)]


@contextmanager
def _emulator(folder: Path) -> Iterator[Running]:
    start = time.monotonic()
    options = ["--create-seconds", "0.1", "--spot-quota", "1000000000", "--hollow"]
    ports = ["--arm-port", "0", "--metadata-port", "0"]
    command = [sys.executable, "-m", "emulator", "--state", str(folder), *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        seconds = time.monotonic() - start
        if not line.startswith(READY):
            raise CannotMeasure(f"the emulator did not start: {line!r}")
        try:
            running = _connected(process.pid, seconds, line.split(), folder)
            yield running
            running.arm.close()
            running.metadata.close()
        finally:
            process.send_signal(signal.SIGTERM)


def _connected(pid: int, seconds: float, fields: list[str], folder: Path) -> Running:
    arm, metadata = urlsplit(fields[3]), urlsplit(fields[-1])
    trusted = ssl.create_default_context(cafile=str(folder / "tls" / "ca.pem"))
    running = Running(
        psutil.Process(pid),
        seconds,
        http.client.HTTPSConnection(arm.netloc, context=trusted, timeout=TIMEOUT),
        http.client.HTTPConnection(metadata.netloc, timeout=TIMEOUT),
    )
    form = {"grant_type": "client_credentials", "client_id": "bench", "client_secret": "any"}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    path = f"/{TENANT}/oauth2/v2.0/token"
    running.token = _answer(running.arm, "POST", path, urlencode(form), kind)["access_token"]
    return running


def _answer(
    to: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None,
    headers: dict[str, str],
) -> Any:  # noqa: ANN401 - JSON
    to.request(method, path, body, headers)
    answer = to.getresponse()
    text = answer.read()
    if answer.status >= 400:
        raise CannotMeasure(f"{method} {path} was answered {answer.status}: {text[:500]!r}")
    return json.loads(text) if text else None


def _fill(emulator: Running, machines: int) -> list[str]:
    """Create the VMs, wait until they exist, and return the paths of the scale sets."""
    emulator.request("PUT", GROUP + VERSION, {"location": "eastus"})
    sizes = [LARGEST_SET] * (machines // LARGEST_SET) + [machines % LARGEST_SET]
    sets = {f"{SETS}/rk-{n}": size for n, size in enumerate(sizes) if size}
    for path, size in sets.items():
        emulator.request("PUT", path + VERSION, _scale_set(size))
    deadline = time.monotonic() + TIMEOUT
    waiting = list(sets)
    while waiting:
        state = emulator.request("GET", waiting[0] + VERSION)["properties"]["provisioningState"]
        if state == "Succeeded":
            waiting.pop(0)
        elif time.monotonic() > deadline or state == "Failed":
            raise CannotMeasure(f"{waiting[0]} is {state}")
    return list(sets)


def _scale_set(size: int, mark: int = 0) -> dict[str, Any]:
    return {
        "location": "eastus",
        "tags": {"mark": str(mark)},
        "sku": {"name": "Standard_ND96amsr_A100_v4", "tier": "Standard", "capacity": size},
        "properties": {
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "overprovision": False,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "priority": "Spot",
                "evictionPolicy": "Delete",
                "osProfile": {"computerNamePrefix": "rk", "adminUsername": "rekindle"},
                "storageProfile": {"osDisk": {"diffDiskSettings": {"option": "Local"}}},
            },
        },
    }


def _calls(emulator: Running, sets: list[str]) -> dict[str, Callable[[int], object]]:
    """Return the requests to measure, by name; each takes the number of the request."""
    listed = _answer(emulator.metadata, "GET", "/_emulator/virtualMachines", None, {})["value"]
    events = urlsplit(listed[-1]["metadata_url"]).path + "/metadata/scheduledevents"
    events += "?api-version=2020-07-01"
    size = min(len(listed), LARGEST_SET)
    return {
        "get_set": lambda n: emulator.request("GET", sets[n % len(sets)] + VERSION),
        "list_instances": lambda n: emulator.request(
            "GET", f"{sets[n % len(sets)]}/virtualMachines{VERSION}"
        ),
        "put_set": lambda n: emulator.request("PUT", sets[0] + VERSION, _scale_set(size, n)),
        "scheduled_events": lambda _: emulator.events(events),
    }


def _weight(emulator: Running, machines: int) -> list[Measure]:
    """Return the memory and the idle CPU of the emulator."""
    memory = emulator.process.memory_info().rss / 2**20
    before = _cpu(emulator)
    time.sleep(IDLE_SECONDS)
    busy = (_cpu(emulator) - before) / IDLE_SECONDS * 100
    return [
        Measure(name=f"memory_at_{machines}_vms", value=round(memory, 1), unit="MiB", bar=1024),
        Measure(name="idle_cpu", value=round(busy, 2), unit="%"),
    ]


def _rate(
    emulator: Running, name: str, act: Callable[[int], object], requests: int
) -> list[Measure]:
    print_progress(f"{requests} x {name}")
    emulator.arm.close()  # the emulator closes idle connections; reopened on use
    emulator.metadata.close()
    before, start = _cpu(emulator), time.monotonic()
    for number in range(requests):
        act(number)
    seconds, cpu = time.monotonic() - start, _cpu(emulator) - before
    rate, cpu_ms = round(requests / seconds, 1), round(cpu / requests * 1000, 2)
    return [
        Measure(name=name, value=rate, unit="requests/s", higher_is_better=True),
        Measure(name=f"{name}_cpu", value=cpu_ms, unit="ms/request"),
    ]


def _cpu(emulator: Running) -> float:
    times = emulator.process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
