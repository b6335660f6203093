"""Where sign-in, roles and identities answer."""

from emulator.access import assignment_requests, definition_requests
from emulator.access.identity import admin_calls, cloud, identities, managed, sign_in
from emulator.parts import GROUP, SUBSCRIPTION, AzurePart

AUTHORIZATION = "/providers/Microsoft.Authorization"
DEFINITIONS = "/{scope:path}" + AUTHORIZATION + "/roleDefinitions"
ASSIGNMENTS = "/{scope:path}" + AUTHORIZATION + "/roleAssignments"
IN_GROUP = GROUP + identities.PROVIDER
IDENTITY = IN_GROUP + "/{name}"

PART = AzurePart(
    arm=[
        ("GET", "/metadata/endpoints", cloud.endpoints),
        ("GET", "/{tenant}/v2.0/.well-known/openid-configuration", sign_in.openid_configuration),
        ("GET", "/{tenant}/discovery/v2.0/keys", sign_in.keys),
        ("POST", "/{tenant}/oauth2/v2.0/token", sign_in.token),
        ("GET", "/tenants", cloud.tenants),
        ("GET", "/subscriptions", cloud.subscriptions),
        ("GET", SUBSCRIPTION, cloud.subscription),
        ("GET", AUTHORIZATION + "/roleDefinitions", definition_requests.list_all),
        ("GET", AUTHORIZATION + "/roleDefinitions/{name}", definition_requests.get),
        ("GET", DEFINITIONS, definition_requests.list_all),
        ("GET", DEFINITIONS + "/{name}", definition_requests.get),
        ("PUT", DEFINITIONS + "/{name}", definition_requests.put),
        ("GET", ASSIGNMENTS, assignment_requests.list_all),
        ("GET", ASSIGNMENTS + "/{name}", assignment_requests.get),
        ("PUT", ASSIGNMENTS + "/{name}", assignment_requests.put),
        ("DELETE", ASSIGNMENTS + "/{name}", assignment_requests.delete),
        ("GET", "/{scope:path}" + AUTHORIZATION + "/permissions", assignment_requests.permissions),
        ("GET", SUBSCRIPTION + identities.PROVIDER, identities.list_all),
        ("GET", IN_GROUP, identities.list_all),
        ("GET", IDENTITY, identities.get),
        ("PUT", IDENTITY, identities.put),
        ("DELETE", IDENTITY, identities.delete),
    ],
    metadata=[
        ("GET", "/vm/{token}/metadata/identity/oauth2/token", managed.of_vm),
        ("GET", "/msi/token", managed.of_app_service),
    ],
    admin=[
        ("POST", "/_emulator/principals", admin_calls.register),
        ("GET", "/_emulator/principals", admin_calls.list_all),
    ],
)
