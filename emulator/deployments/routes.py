"""Where deployments answer."""

from emulator.deployments import requests
from emulator.parts import GROUP, AzurePart

ALL = GROUP + "/providers/Microsoft.Resources/deployments"
ONE = ALL + "/{deployment}"

PART = AzurePart(
    arm=[
        ("GET", ALL, requests.list_all),
        ("GET", ALL + "/", requests.list_all),  # as az asks
        ("HEAD", ONE, requests.head),  # first: a route for GET takes HEAD too
        ("GET", ONE, requests.get),
        ("PUT", ONE, requests.put),
        ("POST", ONE + "/validate", requests.validate),
        ("GET", ONE + "/operations", requests.operations),
        ("GET", GROUP + "/deployments/{deployment}/operations", requests.operations),  # as az asks
        ("GET", ONE + "/operationStatuses/{status}", requests.status),
    ]
)
