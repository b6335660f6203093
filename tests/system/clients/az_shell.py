"""`az` as a child process, signed in to one emulator.

azure-cli pins other versions of Azure's SDK than ours, so it lives in an environment of its own:
.venv-az, or wherever REKINDLE_AZ points.
"""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulated.process import Emulator

ROOT = Path(__file__).parents[3]
SECONDS = 120.0  # for one command


def program() -> Path | None:
    """Where `az` is, or None."""
    named = Path(os.environ.get("REKINDLE_AZ", ROOT / ".venv-az" / "bin" / "az"))  # noqa: TID251 - tests have no settings
    return named if named.exists() else None


class Refused(AssertionError):
    """A command failed, or did not say what it should."""


@dataclass
class Shell:
    """`az`, signed in to one emulator; keeps a transcript."""

    az: Path
    emulator: Emulator
    folder: Path
    say: Callable[[str], None] = field(default=lambda _: None)

    def run(self, *words: str) -> str:
        """One command; raises Refused with what it printed when it fails."""
        shown = (short(word.replace(f"{ROOT}/", "")) for word in words)
        self.say(f"$ az {' '.join(shown)}")
        done = subprocess.run(
            [str(self.az), *words],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(f"az {' '.join(words)}: {done.returncode}\n{done.stderr}{done.stdout}")
        return done.stdout

    def ask(self, *words: str) -> Any:  # noqa: ANN401 - whatever JSON it prints
        """One command that prints JSON."""
        answer = json.loads(self.run(*words, "--output", "json") or "null")
        self.say("  " + short(json.dumps(answer), 160))
        return answer

    def _environment(self) -> dict[str, str]:
        ours = {
            "AZURE_CONFIG_DIR": str(self.folder / "az"),
            "HOME": str(self.folder),  # where --generate-ssh-keys leaves them
            "REQUESTS_CA_BUNDLE": self.emulator.ca,
            "AZURE_CORE_INSTANCE_DISCOVERY": "false",
            "AZURE_CORE_COLLECT_TELEMETRY": "false",
            "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
        }
        return os.environ | ours  # noqa: TID251 - a child's environment


def expect(held: bool, what: str, seen: object) -> None:
    """Raise Refused with what was seen, unless it holds."""
    if not held:
        raise Refused(f"expected {what}, but az said {seen!r}")


def short(text: str, most: int = 80) -> str:
    """Return one line of at most so many characters."""
    text = text.replace("\n", " ")
    return text if len(text) <= most else text[: most - 3] + "..."
