"""Where harm is done to VMs."""

from emulator.parts import Part
from emulator.vm_faults import requests

PART = Part(
    admin=[
        ("POST", "/_emulator/partition", requests.partition),
        ("POST", "/_emulator/disk", requests.disk),
        ("POST", "/_emulator/crash", requests.crash),
        ("POST", "/_emulator/events", requests.announce),
        ("DELETE", "/_emulator/events", requests.call_off),
    ],
)
