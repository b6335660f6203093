"""The console in a real browser: the tests of `web/browser` on a running service."""

import asyncio
import json
import os
import shutil
import sys
from typing import Final

from rekindle.local.layout import StackLayout
from rekindle.local.running_stack import StackInfo
from rekindle.local.setup import ROOT, tools_path
from rekindle.local.state_folder import StackPorts, StateFolder

BROWSERS: Final = (
    os.environ.get("CHROME", ""),  # noqa: TID251 - a person's choice
    *json.loads((ROOT / "web" / "browser" / "browsers.json").read_text()),
)
# Given to the browser tests, so that what is not skipped here is found there.
BROWSER: Final = next(filter(None, map(shutil.which, BROWSERS)), None)


async def browse(stack: StackInfo, job: str) -> tuple[int, str]:
    """Run them; return the exit status and what they printed."""
    variables = {"CONSOLE_URL": stack.api_url, "CONSOLE_KEY": stack.api_key, "CONSOLE_JOB": job}
    variables |= {"CONSOLE_TOKEN": await _sign_in_token(stack)}
    variables |= {"CONSOLE_NEW_KEY": await _newcomers_key(stack)}
    variables |= {"CHROME": BROWSER or "", "NO_COLOR": "1", "PATH": tools_path()}
    return await _run(
        "npm", "--prefix", str(ROOT / "web"), "--silent", "run", "browser", **variables
    )


async def _sign_in_token(stack: StackInfo) -> str:
    """Return the token of a new sign-in link; the one of `make up` expires while jobs train."""
    link = await _main(stack, "sign-in", "--project", "local", "--scope", "write")
    return link.rpartition("=")[2]


async def _newcomers_key(stack: StackInfo) -> str:
    """Create an API key of a new project, which has no jobs."""
    return await _main(stack, "key", "create", "--project", "newcomer", "--name", "browser")


async def _main(stack: StackInfo, *arguments: str) -> str:
    """Run a command of the service and return the last line that it prints."""
    ports = StackPorts.starting_at(int(stack.api_url.rpartition(":")[2]))
    settings = StackLayout(StateFolder(stack.state), ports).service_settings()
    code, printed = await _run(sys.executable, "-m", "service.main", *arguments, **settings)
    assert code == 0, printed
    return printed.strip().splitlines()[-1]


async def _run(*command: str, **settings: str) -> tuple[int, str]:
    running = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **settings},  # noqa: TID251 - what npm and Python need
    )
    output, _ = await running.communicate()
    return running.returncode or 0, output.decode()
