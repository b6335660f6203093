"""The console in a real browser: the tests of `web/browser` on a running service."""

import asyncio
import os

from rekindle.setup import ROOT, tools_path


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
