"""What of the package wandb we call: a run is a file of lines in the folder WANDB_DIR."""

import json
import os
from pathlib import Path
from typing import Any


class Settings:
    """Settings of a run."""

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - as the package
        self.values = values


class Run:
    """One run; a later process goes on with it."""

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - as the package
        key = values["settings"].values["api_key"]
        if key == "wrong":
            raise PermissionError(f"the key {key} is not valid")
        assert values["resume"] == "allow"
        folder = os.environ["WANDB_DIR"]  # noqa: TID251 - a process of its own reads it
        self._path = Path(folder) / f"{values['id']}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.step = max((json.loads(line)["step"] + 1 for line in lines), default=0)
        self.url = f"https://wandb.example/{values['project']}/{values['id']}"

    def log(self, values: dict[str, float], step: int) -> None:
        """Add a line."""
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def finish(self, exit_code: int = 0) -> None:
        """Write how it ended."""
        self._path.with_suffix(".ended").write_text(str(exit_code))


def init(**values: Any) -> Run:  # noqa: ANN401 - as the package
    """Begin a run or go on with it."""
    return Run(**values)
