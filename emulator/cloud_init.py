"""The part of cloud-init that an emulated VM obeys: `write_files` and `runcmd`."""

import base64
import gzip
import re
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

GZIP_MAGIC = b"\x1f\x8b"


class BadUserData(Exception):
    """cloud-init would refuse this document."""


@dataclass(frozen=True, kw_only=True)
class WriteFile:
    """One file to write before any command runs."""

    path: str  # absolute, as on a real VM
    content: bytes
    mode: int


@dataclass(frozen=True, kw_only=True)
class Boot:
    """What to do at boot; ``ignored`` names what the emulator does not do."""

    files: tuple[WriteFile, ...] = ()
    script: str = ""
    ignored: tuple[str, ...] = ()

    def script_below(self, root: str) -> str:
        """The script with the paths of written files moved below ``root``."""
        script = self.script
        for file in sorted(self.files, key=lambda f: -len(f.path)):
            alone = rf"(?<![\w./-]){re.escape(file.path)}(?![\w./-])"
            script = re.sub(alone, (root + file.path).replace("\\", r"\\"), script)
        return script


def parse(user_data: bytes) -> Boot:
    """Read a #cloud-config document or a #! script, gzipped or not; raise BadUserData."""
    if user_data.startswith(GZIP_MAGIC):
        user_data = gzip.decompress(user_data)
    text = user_data.decode()
    if text.startswith("#!"):
        return Boot(script=text)
    if not text.startswith("#cloud-config"):
        raise BadUserData("user data must begin with '#cloud-config' or '#!'")
    return _cloud_config(text)


def _cloud_config(text: str) -> Boot:
    try:
        document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}  # noqa: S506
    except yaml.YAMLError as error:
        raise BadUserData(f"the cloud-config is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise BadUserData("the cloud-config must be a mapping")
    return Boot(
        files=tuple(_file(entry) for entry in document.get("write_files") or ()),
        script=_shellify(document.get("runcmd") or []),
        ignored=tuple(sorted(set(document) - {"write_files", "runcmd"})),
    )


def _file(entry: dict[str, Any]) -> WriteFile:
    path = str(entry.get("path", ""))
    if not path.startswith("/") or ".." in path.split("/"):
        raise BadUserData(f"write_files needs absolute paths without '..', not {path!r}")
    mode = entry.get("permissions", "0644")  # unquoted in YAML it is a number already
    return WriteFile(
        path=path,
        content=_content(entry.get("content", ""), str(entry.get("encoding", "text/plain"))),
        mode=mode if isinstance(mode, int) else int(mode, 8),
    )


def _content(content: str | bytes, encoding: str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    match encoding.lower():
        case "text/plain" | "":
            return raw
        case "b64" | "base64":
            return base64.b64decode(raw)
        case "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64":
            return gzip.decompress(base64.b64decode(raw))
        case "gz" | "gzip":
            return gzip.decompress(raw)
        case _:
            raise BadUserData(f"write_files knows no encoding {encoding!r}")


def _shellify(commands: list[str | list[Any]]) -> str:
    """One shell script of all commands, as cloud-init does: a failing one stops nothing."""
    if not isinstance(commands, list):
        raise BadUserData("runcmd must be a list")
    return "".join(f"{_command(command)}\n" for command in commands)


def _command(command: str | list[Any]) -> str:
    if isinstance(command, str):
        return command
    if isinstance(command, list):
        return shlex.join(str(word) for word in command)
    raise BadUserData(f"runcmd items must be strings or lists, not {command!r}")
