"""Replacement of names, ids, secrets, texts and retired Azure features in recordings."""

import re
from typing import Any

from emulator.core.catalog import catalog

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PUBLIC = re.compile(r"(roleDefinitions/)" + GUID.pattern, re.IGNORECASE)
SUBSCRIPTION = re.compile(r"/subscriptions/[0-9a-f-]{36}", re.IGNORECASE)
NAMED = re.compile(r"/(?:(resource[gG]roups)|providers/[^/]+/(\w+))/([^/?]+)")
KEPT = ("locations", "roleDefinitions", "roleAssignments")  # kinds with names of Azure's own
PLACEHOLDERS = {
    "adminpassword": "Recorded-Pass-1",
    "adminusername": "azureuser",
    "keydata": "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 recorded",
    "customdata": "I2Nsb3VkLWNvbmZpZwo=",
    "userdata": "I2Nsb3VkLWNvbmZpZwo=",
    "settings": {},
    "protectedsettings": {},
    "computernameprefix": "rec",
}
DROPPED = ("description", "metadata", "debugSetting")
WORDS = re.compile(r"https?://(?!schema.management)\S+|\S+@\S+\.\S+")


SIZE = re.compile(r"(Standard|Basic)_[A-Z]+\d\w*", re.IGNORECASE)
STAND_IN = "Standard_D2s_v3"  # replaces sizes that the emulator's catalog lacks
CANARY = re.compile(r"(eastus2|centralus)euap", re.IGNORECASE)  # regions with restricted access


def scrubbed(value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return the value without secrets, keys, scripts, descriptions and addresses."""
    instead = PLACEHOLDERS.get(key.lower())
    if isinstance(value, dict):
        if instead is not None and set(value) <= {"value"}:
            return {"value": instead}
        return {k: scrubbed(v, k) for k, v in value.items() if k not in DROPPED}
    if isinstance(value, list):
        return [scrubbed(row) for row in value]
    if isinstance(value, str):
        fixed = instead is not None and not value.startswith("[")
        return instead if fixed else WORDS.sub("https://example.com/", _renewed(value, key))
    return value


def _renewed(value: str, key: str) -> str:
    """Return the value, or a replacement for what Azure retired: Basic addresses, old sizes."""
    if key == "path" and value.endswith("/.ssh/authorized_keys"):
        return "~/.ssh/authorized_keys"
    if key == "publicIPAllocationMethod":
        return "Static"
    if key == "name" and value == "Basic":
        return "Standard"
    return STAND_IN if SIZE.fullmatch(value) and not catalog().size(value) else value


class Names:
    """Numbered replacements of the names in the URLs of one recording."""

    def __init__(self, uris: list[str]) -> None:
        replacements: dict[str, str] = {}
        counts: dict[str, int] = {}
        for uri in uris:
            for group, kind, name in NAMED.findall(uri):
                if kind in KEPT or name.lower() in replacements or len(name) < 2:
                    continue
                short = "group" if group else kind[:4] + "".join(re.findall("[A-Z]", kind))
                counts[short] = counts.get(short, 0) + 1
                replacements[name.lower()] = f"{short}{counts[short]}".lower()
        self._numbers = replacements
        longest = sorted(map(re.escape, replacements), key=len, reverse=True)
        either = "|".join(longest) or "(?!)"  # without names, a pattern that never matches
        self._pattern = re.compile(rf"(?<![\w-])({either})(?![\w-])", re.IGNORECASE)

    def numbered(self, text: str) -> str:
        """Return the text with numbers for names, and zeros for ids."""
        text = SUBSCRIPTION.sub("/subscriptions/{subscription}", text)
        text = CANARY.sub(r"\1", text)
        text = self._pattern.sub(lambda m: self._numbers[m[0].lower()], text)
        if PUBLIC.search(text):
            return text
        return GUID.sub("00000000-0000-0000-0000-000000000009", text)

    def in_body(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return the value with all names and ids replaced."""
        if isinstance(value, dict):
            return {self.numbered(k): self.in_body(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.in_body(row) for row in value]
        return self.numbered(value) if isinstance(value, str) else value
