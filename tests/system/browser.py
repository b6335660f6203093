"""The console in a real browser: the tests of `web/browser` on a running service."""

import asyncio
import os
import shutil
from typing import Final

from rekindle.setup import ROOT, tools_path

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


def has_browser() -> bool:
    """Whether `web/browser/open.ts` will find one."""
    named = os.environ.get("CHROME")  # noqa: TID251 - the same variable
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    return any(map(shutil.which, (*BROWSERS, named or "", mac)))


async def browse(url: str, key: str, job: str) -> tuple[int, str]:
    """Run them; the exit status and what they printed."""
    told = {"CONSOLE_URL": url, "CONSOLE_KEY": key, "CONSOLE_JOB": job, "NO_COLOR": "1"}
    environment = os.environ | told | {"PATH": tools_path()}  # noqa: TID251 - CHROME, for example
    browsing = await asyncio.create_subprocess_exec(
        "npm",
        *("--prefix", str(ROOT / "web"), "--silent", "run", "browser"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    output, _ = await browsing.communicate()
    return browsing.returncode or 0, output.decode()
