"""Where harm is done to VMs."""

from emulator.faults import vm_requests
from emulator.parts import AzurePart

PART = AzurePart(
    admin=[
        ("POST", "/_emulator/partition", vm_requests.partition),
        ("POST", "/_emulator/disk", vm_requests.disk),
        ("POST", "/_emulator/crash", vm_requests.crash),
        ("POST", "/_emulator/events", vm_requests.announce),
        ("DELETE", "/_emulator/events", vm_requests.call_off),
    ]
)
