"""What is taken out of recordings: names, ids, secrets, texts; and what Azure has retired since."""

import re
from typing import Any

from emulator.core.catalog import catalog

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PUBLIC = re.compile(r"(roleDefinitions/)" + GUID.pattern, re.IGNORECASE)
SUBSCRIPTION = re.compile(r"/subscriptions/[0-9a-f-]{36}", re.IGNORECASE)
NAMED = re.compile(r"/(?:(resource[gG]roups)|providers/[^/]+/(\w+))/([^/?]+)")
KEPT = ("locations", "roleDefinitions", "roleAssignments")  # kinds whose names are Azure's own
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
STAND_IN = "Standard_D2s_v3"  # for sizes that the emulator's catalogue lacks
CANARY = re.compile(r"(eastus2|centralus)euap", re.IGNORECASE)  # regions that few may use


def scrubbed(value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON
    """The value without secrets, keys, scripts, descriptions and addresses."""
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
    """The value, or what stands in for what Azure no longer has: Basic addresses, old sizes."""
    if key == "path" and value.endswith("/.ssh/authorized_keys"):
        return "~/.ssh/authorized_keys"
    if key == "publicIPAllocationMethod":
        return "Static"
    if key == "name" and value == "Basic":
        return "Standard"
    return STAND_IN if SIZE.fullmatch(value) and not catalog().size(value) else value


class Names:
    """Numbers for the names in the addresses of one recording."""

    def __init__(self, uris: list[str]) -> None:
        found: dict[str, str] = {}
        counts: dict[str, int] = {}
        for uri in uris:
            for group, kind, name in NAMED.findall(uri):
                if kind in KEPT or name.lower() in found or len(name) < 2:
                    continue
                short = "group" if group else kind[:4] + "".join(re.findall("[A-Z]", kind))
                counts[short] = counts.get(short, 0) + 1
                found[name.lower()] = f"{short}{counts[short]}".lower()
        self._numbers = found
        longest = sorted(map(re.escape, found), key=len, reverse=True)
        either = "|".join(longest) or "(?!)"  # of no name there is none in any text
        self._pattern = re.compile(rf"(?<![\w-])({either})(?![\w-])", re.IGNORECASE)

    def numbered(self, text: str) -> str:
        """The text with numbers for names, and zeros for ids."""
        text = SUBSCRIPTION.sub("/subscriptions/{subscription}", text)
        text = CANARY.sub(r"\1", text)
        text = self._pattern.sub(lambda m: self._numbers[m[0].lower()], text)
        if PUBLIC.search(text):
            return text
        return GUID.sub("00000000-0000-0000-0000-000000000009", text)

    def in_body(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """The value with every name and id in it replaced."""
        if isinstance(value, dict):
            return {self.numbered(k): self.in_body(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.in_body(row) for row in value]
        return self.numbered(value) if isinstance(value, str) else value
