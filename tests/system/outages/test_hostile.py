"""The limits before authentication, against a real api process; figures: docs/benchmarks.md."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST_MIB = 300.0  # that an attack may add; without the limits some added 1,900


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("attack", ["header of", "60,000", "pipelined", "half bodies", "chunks"])
def test_no_stranger_fills_the_memory_of_an_api_process(tmp_path: Path, attack: str) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench.hostile", "--only", attack, "--json", str(report)]
    subprocess.run(command, check=True, timeout=850)

    (row,) = json.loads(report.read_text())["rows"]
    assert row["peak"] - row["before"] < MOST_MIB
    assert not any(answer.startswith("HTTP/1.1 2") for answer in row["answers"])
