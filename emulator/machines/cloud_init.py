"""The part of cloud-init that an emulated VM obeys: files and commands; `Boot` says which."""

import base64
import email
import gzip
import re
import shlex
import zlib
from dataclasses import dataclass
from email.message import Message
from typing import Any

import yaml

GZIP_MAGIC = b"\x1f\x8b"
CONFIG, SCRIPT, HOOK = "text/cloud-config", "text/x-shellscript", "text/cloud-boothook"
BEGINNINGS = {"#cloud-config": CONFIG, "#!": SCRIPT, "#cloud-boothook": HOOK}
OBEYED = {"bootcmd", "write_files", "runcmd"}


class BadUserData(Exception):
    """cloud-init would refuse this document."""


@dataclass(frozen=True, kw_only=True)
class WriteFile:
    """One file to write before any command of `Boot.scripts` runs."""

    path: str  # absolute, as on a real VM
    content: bytes
    mode: int
    append: bool = False


@dataclass(frozen=True, kw_only=True)
class Boot:
    """What to do; ``ignored`` names what the emulator does not do."""

    early: tuple[str, ...] = ()  # scripts of every boot, before anything else
    files: tuple[WriteFile, ...] = ()  # written at the first boot, the deferred ones last
    scripts: tuple[str, ...] = ()  # run at the first boot; a failing one stops nothing
    ignored: tuple[str, ...] = ()

    def below(self, root: str, script: str) -> str:
        """Return the script with the paths of written files moved below ``root``."""
        for path in sorted({file.path for file in self.files}, key=len, reverse=True):
            alone = rf"(?<![\w./-]){re.escape(path)}(?![\w./-])"
            script = re.sub(alone, (root + path).replace("\\", r"\\"), script)
        return script


def parse(user_data: bytes) -> Boot:
    """Read what cloud-init takes as user data, gzipped or not; raise BadUserData.

    That is a #cloud-config document, a script, a boothook, or MIME with several of them; or
    nothing.
    """
    if not user_data:
        return Boot()
    try:
        return _parse(_unzipped(user_data).decode())
    except (ValueError, OSError, EOFError, zlib.error, LookupError) as error:
        raise BadUserData(f"the user data cannot be read: {error}") from error


def _parse(text: str) -> Boot:
    if re.match(r"(content-type|mime-version):", text, re.IGNORECASE):
        return _together(list(_parts(email.message_from_string(text))))
    return _together([("part-001", _kind(text), text)])


def _parts(message: Message) -> list[tuple[str, str, str]]:
    """(file name, kind, text) of every part; one without a telling type is known by its text."""
    parts = []
    leaves = [part for part in message.walk() if not part.is_multipart()]
    for number, part in enumerate(leaves, 1):
        payload = part.get_payload(decode=True)
        text = _unzipped(payload if isinstance(payload, bytes) else b"").decode()
        kind = part.get_content_type()
        kind = _kind(text) if kind in ("text/plain", "application/octet-stream") else kind
        parts.append((part.get_filename() or f"part-{number:03}", kind, text))
    return parts


def _unzipped(raw: bytes) -> bytes:
    return gzip.decompress(raw) if raw.startswith(GZIP_MAGIC) else raw


def _kind(text: str) -> str:
    for beginning, kind in BEGINNINGS.items():
        if text.startswith(beginning):
            return kind
    raise BadUserData(f"user data must begin with one of {', '.join(BEGINNINGS)}, or be MIME")


def _together(parts: list[tuple[str, str, str]]) -> Boot:
    """One boot of all parts. A later cloud-config replaces whole keys of those before it."""
    document: dict[str, Any] = {}
    for _, kind, text in parts:
        if kind == CONFIG:
            document |= _load(text)
    scripts = {name: text for name, kind, text in parts if kind == SCRIPT}
    if commands := _shellify(document.get("runcmd") or [], "runcmd"):
        scripts["runcmd"] = commands
    hooks = [text.partition("\n")[2] for _, kind, text in parts if kind == HOOK]
    early = [*hooks, _shellify(document.get("bootcmd") or [], "bootcmd")]
    foreign = {kind for _, kind, _ in parts if kind not in BEGINNINGS.values()}
    return Boot(
        early=tuple(script for script in early if script),
        files=tuple(_file(entry) for entry in _entries(document.get("write_files") or [])),
        scripts=tuple(scripts[name] for name in sorted(scripts)),  # as run-parts does
        ignored=tuple(sorted(set(document) - OBEYED | foreign)),
    )


def _load(text: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}  # noqa: S506
    except yaml.YAMLError as error:
        raise BadUserData(f"the cloud-config is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise BadUserData("the cloud-config must be a mapping")
    return document


def _entries(entries: object) -> list[dict[str, Any]]:
    """Return the files in the order in which they are written."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadUserData("write_files must be a list of mappings")
    return sorted(entries, key=lambda entry: bool(entry.get("defer")))


def _file(entry: dict[str, Any]) -> WriteFile:
    path = str(entry.get("path", ""))
    if not path.startswith("/") or ".." in path.split("/"):
        raise BadUserData(f"write_files needs absolute paths without '..', not {path!r}")
    mode = entry.get("permissions", "0644")  # unquoted in YAML it is a number already
    return WriteFile(
        path=path,
        content=_content(entry.get("content") or "", str(entry.get("encoding", "text/plain"))),
        mode=mode if isinstance(mode, int) else int(str(mode), 8),
        append=entry.get("append") is True,
    )


def _content(content: object, encoding: str) -> bytes:
    raw = content if isinstance(content, bytes) else str(content).encode()
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


def _shellify(commands: list[str | list[Any]], name: str) -> str:
    """One shell script of all commands, as cloud-init does: a failing one stops nothing."""
    if not isinstance(commands, list):
        raise BadUserData(f"{name} must be a list")
    return "".join(f"{_command(command, name)}\n" for command in commands)


def _command(command: str | list[Any], name: str) -> str:
    if isinstance(command, str):
        return command
    if isinstance(command, list):
        return shlex.join(str(item) for item in command)
    raise BadUserData(f"{name} items must be strings or lists, not {command!r}")
