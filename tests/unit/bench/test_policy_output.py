"""The figures of a policy benchmark outlive a failure to draw them."""

import json
import subprocess
import sys
from pathlib import Path

from bench.report import ROOT


def test_figures_are_written_even_if_the_picture_cannot_be(tmp_path: Path) -> None:
    traces, figures = tmp_path / "traces", tmp_path / "figures.json"
    traces.mkdir()
    recording = {"metadata": {"gap_seconds": 300}, "data": [1] * 200 + [0] * 10 + [1] * 400}
    (traces / "zone.json").write_text(json.dumps(recording))
    small = ("--hours=2", "--windows=1", "--forecasts=1", f"--json={figures}")
    picture = tmp_path / "no-such-folder" / "picture.svg"

    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.policy",
            f"--traces={traces}",
            f"--picture={picture}",
            *small,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode != 0, result.stderr
    assert json.loads(figures.read_text())["bench"] == "policy", result.stderr
