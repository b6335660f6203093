"""Where the weather is asked about and made, and what it does."""

from emulator.parts import AzurePart
from emulator.weather import reclaims, requests

PART = AzurePart(
    admin=[
        ("POST", "/_emulator/weather", requests.post),
        ("GET", "/_emulator/weather", requests.get),
        ("DELETE", "/_emulator/weather", requests.delete),
    ],
    chores=[reclaims.carry_on],
)
