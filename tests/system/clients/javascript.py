"""Record a session of Azure's JavaScript SDK with the emulator: `make az`.

The packages are for this session alone and take 80 MB, so `make setup` leaves them out: the first
run installs them into `.npm-azure`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rekindle.local.setup import tools_path
from tests.emulated.process import SUBSCRIPTION, TENANT, VERSION, Emulator
from tests.system.clients.transcripts import Transcript

PACKAGES = Path(__file__).parents[3] / ".npm-azure"
WANTED = ("@azure/arm-compute@24.1.0", "@azure/identity@4.13.1")
SESSION = Path(__file__).with_name("compute_session.js")
SECONDS = 240.0
PAGE = "javascript-session.txt"


def install() -> None:
    """Install the packages unless they are there."""
    if (PACKAGES / "node_modules").exists():
        return
    PACKAGES.mkdir(exist_ok=True)
    npm = shutil.which("npm", path=tools_path()) or "npm"
    quiet = ("--silent", "--no-fund", "--no-audit", "--ignore-scripts")
    subprocess.run([npm, "install", *quiet, "--prefix", str(PACKAGES), *WANTED], check=True)


def play(emulator: Emulator, transcript: Transcript) -> int:
    """Run the session against an emulator; return its exit code, 0 when all was as it should be."""
    with emulator.signed_in() as client:
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/js{VERSION}"
        client.put(group, json={"location": "eastus"}).raise_for_status()
    node = shutil.which("node", path=tools_path()) or "node"
    process = subprocess.run(
        [node, str(SESSION), str(PACKAGES), emulator.arm_url, TENANT, SUBSCRIPTION],
        env=os.environ | {"NODE_EXTRA_CA_CERTS": emulator.ca},  # noqa: TID251 - a child's environment
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    for line in process.stdout.splitlines():
        transcript.say(line)
    return process.returncode


def main() -> int:
    """Install what is missing, play the session, and keep its transcript."""
    install()
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(Path(folder) / "state", "--hollow", "--notice-seconds", "2")
        transcript = Transcript(Path(folder))
        try:
            code = play(emulator, transcript)
        finally:
            emulator.stop()
    if code == 0:
        transcript.keep(PAGE)
    return code


if __name__ == "__main__":
    sys.exit(main())
