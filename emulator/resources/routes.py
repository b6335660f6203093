"""Where all other resources answer: at any provider, so these routes come last."""

from emulator.parts import GROUP, SUBSCRIPTION, AzurePart
from emulator.resources import offered, requests

ANY = "/providers/{rest:path}"

PART = AzurePart(
    arm=[
        ("GET", SUBSCRIPTION + "/locations", offered.locations),
        ("GET", SUBSCRIPTION + "/providers", offered.providers),
        ("GET", SUBSCRIPTION + "/providers/{namespace}", offered.provider),
        ("POST", SUBSCRIPTION + "/providers/{namespace}/register", offered.change),
        ("POST", SUBSCRIPTION + "/providers/{namespace}/unregister", offered.change),
        ("GET", SUBSCRIPTION + "/resources", requests.list_all),
        ("GET", GROUP + "/resources", requests.list_all),
        ("GET", GROUP + ANY, requests.get),
        ("PUT", GROUP + ANY, requests.put),
        ("PATCH", GROUP + ANY, requests.patch),
        ("DELETE", GROUP + ANY, requests.delete),
        ("POST", GROUP + ANY, requests.post),
        ("GET", SUBSCRIPTION + ANY, requests.list_type),
    ]
)
