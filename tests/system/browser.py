"""The console in a real browser: the tests of `web/browser` on a running service."""

import asyncio
import os
import shutil
from typing import Final

from rekindle.setup import ROOT, tools_path

BROWSERS: Final = (
    os.environ.get("CHROME", ""),  # noqa: TID251 - a person's choice
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
# Given to the browser tests, so that what is not skipped here is found there.
BROWSER: Final = next(filter(None, map(shutil.which, BROWSERS)), None)


async def browse(url: str, key: str, job: str) -> tuple[int, str]:
    """Run them; return the exit status and what they printed."""
    told = {"CONSOLE_URL": url, "CONSOLE_KEY": key, "CONSOLE_JOB": job, "NO_COLOR": "1"}
    told |= {"CHROME": BROWSER or ""}
    environment = os.environ | told | {"PATH": tools_path()}  # noqa: TID251 - what npm needs
    browsing = await asyncio.create_subprocess_exec(
        "npm",
        *("--prefix", str(ROOT / "web"), "--silent", "run", "browser"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    output, _ = await browsing.communicate()
    return browsing.returncode or 0, output.decode()
