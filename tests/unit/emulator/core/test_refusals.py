"""What Azure and the emulator refuse besides scale sets: what is sent, status, code and words."""

from tests.emulated import azureml as ml
from tests.emulated.inside import GROUP_ID, HERE, PROVIDERS, SETS, Inside
from tests.emulated.process import scale_set
from tests.unit.emulator.deployments.deployed import DEPLOYMENTS, template
from tests.unit.emulator.deployments.deployed import body as deployment
from tests.unit.emulator.refused import Json, Refusal, check

EASTUS = {"location": "eastus"}
COMPUTE = f"{HERE}/providers/Microsoft.Compute"
NETWORKS = "Microsoft.Network/virtualNetworks"
ACCOUNTS = "Microsoft.Storage/storageAccounts"
SERVERS = "Microsoft.DBforPostgreSQL/flexibleServers"
REGISTRIES = "Microsoft.ContainerRegistry/registries"
VAULTS = "Microsoft.KeyVault/vaults"
ACCOUNT = {**EASTUS, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
REGION, INVALID = "LocationNotAvailableForResourceType", "InvalidParameter"
TYPE, CONTENT, BAD = "InvalidResourceType", "InvalidRequestContent", "BadRequest"
OLD, NEW = "2023-08-01-preview", "2025-01-01-preview"


def json(*rows: Json) -> tuple[Json, ...]:
    """Return these rows, typed as JSON of any form."""
    return rows


def network(*prefixes: str, **subnets: str) -> Json:
    """Return a network with subnets, passed as name=prefix."""
    rows = [{"name": n, "properties": {"addressPrefix": p}} for n, p in subnets.items()]
    space = {"addressPrefixes": list(prefixes)}
    return EASTUS | {"properties": {"addressSpace": space, "subnets": rows}}


def server(password: str | None, size: str = "Standard_B1ms") -> Json:
    """Return a PostgreSQL server of the tier Burstable."""
    login = {"administratorLogin": "rk", "administratorLoginPassword": password}
    return EASTUS | {"sku": {"name": size, "tier": "Burstable"}, "properties": login}


def vault(**change: object) -> Json:
    """Return a key vault with these properties changed."""
    properties = {
        "tenantId": "11111111-1111-1111-1111-111111111111",
        "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": True,
    }
    return EASTUS | {"properties": properties | change}


AGE = {"daysAfterModificationGreaterThan": 30}
COOL: Json = {"baseBlob": {"tierToCool": AGE}}
BLOCKS = {"blobTypes": ["blockBlob"]}
RULE: Json = {"type": "Lifecycle", "definition": {"filters": BLOCKS, "actions": COOL}}


def policy(**change: object) -> Json:
    """Return a lifecycle policy whose only rule has these members changed."""
    return {"properties": {"policy": {"rules": [RULE | change]}}}


def defined(filters: Json, actions: Json) -> Json:
    """Return a lifecycle policy with these filters and actions."""
    return policy(definition={"filters": filters, "actions": actions})


LIFECYCLE, VALUE = f"{ACCOUNTS}/account/managementPolicies/default", "InvalidRequestPropertyValue"
RESOURCES = [
    (f"{NETWORKS}/n", network("10.0.0.0/16", a="10.1.0.0/24"), "NetcfgInvalidSubnet"),
    (f"{NETWORKS}/n", network("10.0.0.0/16", a="10.0.0.0/23", b="10.0.1.0/24"),
     "NetcfgSubnetRangesOverlap"),
    (f"{NETWORKS}/n", network("10.0.0.0/16", a="10.0.0.1/24"), "InvalidCIDRNotation"),
    (f"{NETWORKS}/n", network("10.0.0.0/16", a="somewhere"), "InvalidAddressPrefixFormat"),
    (f"{NETWORKS}/n", EASTUS | {"properties": []}, CONTENT),
    (f"{ACCOUNTS}/UPPER", ACCOUNT, "AccountNameInvalid"),
    (f"{ACCOUNTS}/other", ACCOUNT | {"sku": {"name": "Cheap"}}, VALUE),
    (f"{ACCOUNTS}/other", ACCOUNT | {"location": "atlantis"}, REGION),
    (LIFECYCLE, {"properties": {"policy": {}}}, VALUE),
    (LIFECYCLE, defined(BLOCKS, {}), VALUE),
    (LIFECYCLE, defined(BLOCKS, {"baseBlob": {"burn": AGE}}), VALUE),
    (LIFECYCLE, defined(BLOCKS | {"prefixMatch": ["a"] * 11}, COOL), VALUE),
    *((f"{SERVERS}/db1", server(weak), "PasswordNotComplex")
      for weak in ("short", "RK-and-more-1", None)),
    (f"{SERVERS}/db1", server("Horse-battery-1", "Standard_D2s_v3"), "InvalidParameterValue"),
    (f"{VAULTS}/bad--name", vault(), "VaultNameNotValid"),
    *((f"{VAULTS}/vault", vault(**change), BAD)
      for change in json({"tenantId": "x"}, {"sku": {}}, {"enableRbacAuthorization": False})),
    (f"{REGISTRIES}/no-dash", EASTUS | {"sku": {"name": "Basic"}}, "InvalidResourceName"),
    (f"{REGISTRIES}/images", EASTUS | {"sku": {"name": "Gold"}}, "InvalidSku"),
    (f"{ACCOUNTS}/account/listSecrets/x", {}, TYPE),
    ("Microsoft.Storage/oddities/o", {}, TYPE),
    (f"{NETWORKS}/n/oddities/o", {}, TYPE),
    (f"{NETWORKS}/n//s", {}, TYPE),
]  # fmt: skip
ROWS = [
    *(Refusal(path, body, code, "", 404 if code == TYPE else 400)
      for path, body, code in RESOURCES),
    Refusal(f"{ACCOUNTS}/account", ACCOUNT | {"location": "westus2"}, "InvalidResourceLocation",
            "", 409),
    Refusal(f"{SERVERS}/db1/databases/d", {}, "ParentResourceNotFound", "", 404),
    Refusal(NETWORKS, {}, "MethodNotAllowed", "needs the name", 405),
    Refusal("Contoso.Things/boxes/b", {}, "InvalidResourceNamespace", "", 404),
    Refusal(f"{HERE}/providers/Contoso.Farm/tractors", None, "InvalidResourceNamespace", "", 404,
            "GET"),
    Refusal(f"{SETS}/no", None, "ResourceNotFound", "", 404, "GET"),
    Refusal(f"{PROVIDERS}/Microsoft.Compute/tractors/no", None, TYPE, "", 404, "GET"),
    Refusal(f"{HERE}/nothing/of/the/kind", None, "NotFound", "", 404, "GET"),
    Refusal("/favicon.ico", None, "MissingSubscription", "", 404, "GET"),
    Refusal(f"{SETS}/no/%2e%2e%2f%00", None, "NotFound", "", 404, "GET"),
    Refusal(GROUP_ID, None, "MethodNotAllowed", "", 405, "POST"),
    Refusal(f"{SETS}/no", None, "MissingApiVersionParameter", "", 400, "GET", ""),
    *(Refusal(SETS, None, "NoRegisteredProviderFound", f"API version '{version}' for type", 400,
              "GET", version)
      for version in ("soon", "2026-04-01; drop", "2012-01-01", "2099-01-01")),
    Refusal(GROUP_ID, None, "InvalidApiVersionParameter", "'soon'", 400, "GET", "soon"),
    *(Refusal(f"{SETS}?$skiptoken={token}", None, INVALID, "not issued here", 400, "GET")
      for token in ("²", "-1", "9" * 500, "1.5")),
    # Groups
    Refusal(GROUP_ID, {"location": "West US 2"}, "InvalidResourceGroupLocation", "'eastus'", 409),
    Refusal(f"{HERE}/resourceGroups/b", {"location": "Atlantis"},
            "LocationNotAvailableForResourceGroup", "'atlantis' is not available"),
    Refusal(f"{HERE}/resourceGroups/no", None, "ResourceGroupNotFound", "", 404, "GET"),
    *(Refusal(f"{HERE}/resourceGroups/{name}", EASTUS, "InvalidResourceGroup", "", 400, method)
      for name in ("a group", "a%26b", "over.", "²", "x" * 91) for method in ("GET", "PUT")),
    *(Refusal(f"{HERE}/resources?$filter={text}", None, "InvalidFilterInQueryString", "", 400,
              "GET")
      for text in ("name", "name eq", "name eq 'a' and", "weight eq 'a'", "name eq a", "'",
                   "size gt 3", "name eq 'a' xor name eq 'b'",
                   "tagName eq 'owner' and tagValue eq 'me' and name eq 'guard'")),
    *(Refusal(f"{HERE}/resources?$top={top}", None, "InvalidTop", "", 400, "GET")
      for top in ("0", "-1", "many")),
    # Deployments
    *(Refusal(f"{DEPLOYMENTS}/d", {"properties": properties}, code)
      for properties, code in (
          ({"mode": "Complete", "template": template()}, "InvalidDeploymentMode"),
          ({"templateLink": {"uri": "https://x"}}, "InvalidTemplate"),
          (None, CONTENT),
      )),
    Refusal(f"{DEPLOYMENTS}/{'n' * 65}", deployment(template()), "InvalidDeploymentName"),
]  # fmt: skip


async def test_resources_groups_and_deployments_are_refused_as_azure_does(inside: Inside) -> None:
    (await inside.arm.put(f"{PROVIDERS}/{ACCOUNTS}/account", json=ACCOUNT)).raise_for_status()
    await check(inside, ROWS)


ASKED = {"cost": {"name": "PreTaxCost", "function": "Sum"}}
QUERY: Json = {
    "type": "ActualCost",
    "timeframe": "Custom",
    "timePeriod": {"from": "2026-01-01", "to": "2026-12-31"},
    "dataset": {"granularity": "None", "aggregation": ASKED},
}
ND = "Standard_ND96amsr_A100_v4"
PLACEMENT = {"desiredLocations": ["eastus"], "desiredSizes": [{"sku": ND}], "desiredCount": 2}
COSTS = f"{HERE}/providers/Microsoft.CostManagement/query"
SCORES = f"{COMPUTE}/locations/eastus/placementScores/spot/generate"
MARKET = [
    *(Refusal(COSTS, QUERY | wrong, BAD, "", 400, "POST", "2025-03-01") for wrong in json(
        {"type": "Guess"},
        {"timePeriod": {"from": "2026-11-02", "to": "2026-11-01"}},
        {"timePeriod": {"from": "soon", "to": "later"}},
        {"dataset": {"granularity": "Daily"}},
        {"dataset": {"aggregation": {"a": {"name": "Mood", "function": "Sum"}}}},
        *({"dataset": QUERY["dataset"] | part} for part in json(
            {"granularity": "Hourly"},
            {"grouping": [{"type": "Dimension", "name": "Mood"}]},
            {"filter": {"mood": {}}},
            {"filter": {"tags": {"name": "a"}}},
        )),
    )),
    Refusal(f"{COSTS}?$skiptoken=-1", QUERY, BAD, "not issued here", 400, "POST", "2025-03-01"),
    *(Refusal(SCORES, PLACEMENT | wrong, INVALID, "", 400, "POST", "2025-06-05") for wrong in json(
        {"desiredLocations": ["eastus"] * 9},
        {"desiredSizes": [{"sku": ND}] * 6},
        {"desiredCount": 0},
        {"availabilityZones": "yes"},
    )),
    Refusal(f"{COMPUTE}/skus?$filter=name eq 'x'", None, "InvalidFilterInQueryString", "location",
            400, "GET"),
    *(Refusal("/_emulator/market/restrictions", {"vm_size": ND, "region": "eastus"} | wrong,
              INVALID, "", 400, "POST")
      for wrong in ({"region": "mars"}, {"reason": "mood"}, {"zones": "1"})),
    *(Refusal("/_emulator/market/prices", {"vm_size": ND, "region": "eastus"} | wrong, INVALID, "",
              400, "POST") for wrong in json(
        {"row": {}, "region": "northpole"},
        {"row": {}, "bought": "Spot"},
        {"row": []},
        {},
        {"row": {}, "alone": "yes"},
        {"row": {}, "price": 0},
    )),
]  # fmt: skip


async def test_the_market_refuses_what_it_cannot_answer(inside: Inside) -> None:
    for path, body, version in ((COSTS, QUERY, "2025-03-01"), (SCORES, PLACEMENT, "2025-06-05")):
        response = await inside.arm.post(path, params={"api-version": version}, json=body)
        # So each row below is refused because of its change.
        assert response.status_code == 200, response.text
    await check(inside, MARKET)


ML = [
    *(Refusal(f"{ml.WORKSPACE}/computes/bad", body, "UserError", version=OLD) for body in json(
        ml.cluster(vmSize="Standard_Nonsense"),
        ml.cluster(1, 2),
        ml.cluster(101),
        ml.cluster(idle="soon"),
        ml.cluster() | {"identity": "me"},
        {"properties": {"computeType": "ComputeInstance"}},
        {},
    )),
    *(Refusal(f"{ml.JOBS}/bad", body, "UserError", version=NEW) for body in json(
        ml.job(computeId=f"{ml.CLUSTER}-other"),
        ml.job(environmentId=f"{ml.ENVIRONMENT}0"),
        ml.job(nodes=3),
        ml.job(nodes=0),
        ml.job(distribution={"distributionType": "TensorFlow"}),
        ml.job(command=" "),
        ml.job(jobType="Sweep"),
        ml.job(codeId=f"{ml.JOBS}/../codes/c/versions/1"),
        ml.job(environmentVariables=["x"]),
        ml.job(environmentVariables={"a=b": "c"}),
        ml.job(environmentVariables={"a": "b\0c"}),
        ml.job(inputs={"data": {"jobInputType": "uri_folder", "uri": "https://x"}}),
        ml.job(outputs={"../up": {"jobOutputType": "uri_folder"}}),
        ml.job(limits={"timeout": "an hour"}),
        {},
    )),
    Refusal(ml.WORKSPACE, {"location": "westus2"}, "InvalidResourceLocation", "", 409, version=OLD),
    *(Refusal(ml.WORKSPACE, EASTUS | {"tags": tags}, "InvalidTags", version=OLD)
      for tags in ("x", {"a": 1})),
    *(Refusal(path, None, code, "", 404, "GET", OLD) for path, code in (
        (f"{ml.WORKSPACES}/none", "ResourceNotFound"),
        (f"{ml.WORKSPACES}/none/computes/spot", "ResourceNotFound"),
        (f"{ml.WORKSPACE}/computes/none", "ResourceNotFound"),
        (f"{ml.JOBS}/none", "UserError"),
        (f"{ml.WORKSPACE}/environments/none/versions/1", "UserError"),
        (f"{ml.WORKSPACE}/models/none/versions/1", "UserError"),
    )),
    *(Refusal(f"/_emulator/azureml/{what}", body, code, "", status, "POST")
      for what, body, code, status in (
          ("preempt", {"job": "none"}, "NotFound", 404),
          ("preempt", {"job": "waits"}, "NotFound", 409),
          ("preempt", {"job": "runs", "nodes": 3}, INVALID, 400),
          ("preempt", {"job": "runs", "then": "explode"}, INVALID, 400),
          ("silence", {"job": "runs", "seconds": 0}, INVALID, 400),
      )),
]  # fmt: skip


async def test_azure_ml_refuses_in_its_own_code(inside: Inside) -> None:
    await ml.make_workspace(inside)
    await ml.submit(inside, "runs", nodes=2)
    await inside.pass_time(15)
    await ml.submit(inside, "waits", nodes=2)
    await check(inside, ML)


VM = {"vm": "rk-1_0"}
ADMIN = [
    *(Refusal(f"/_emulator/{call}", {"slip": 1}, INVALID, "'slip'", 400, "POST") for call in (
        *("capacity", "crash", "disk", "events", "evict", "partition", "principals", "restore"),
        "market/restrictions",
    )),
    Refusal(
        "/_emulator/spotCapacity", {"kind": "constant", "slip": 1}, INVALID, "'slip'", 400, "POST"
    ),
    Refusal("/_emulator/evictions", None, "NotFound", "/_emulator/evict,", 404, "GET"),
    *(Refusal(f"/_emulator/{call}?regoin=eastus", None, INVALID, "'regoin'", 400, "DELETE")
      for call in ("spotCapacity", "faults", "events")),
    *(Refusal("/_emulator/faults", body, INVALID, words, 400, "POST") for body, words in (
        ({"kind": "earthquake"}, "'kind' must be one of"),
        ({"kind": "error", "color": "red"}, "no member 'color'"),
        ({"kind": "error", "delay": -1}, "less than nothing"),
        ({"kind": "drop", "when": "never"}, "before or after"),
        ({"kind": "error", "path": "("}, "no regular expression"),
    )),
    *(Refusal("/_emulator/events", VM | body, INVALID, words, 400, "POST") for body, words in (
        ({"kind": "Earthquake"}, "must be one of"),
        ({"kind": "Reboot", "notice": 10}, "at least 900 s ahead"),
        ({"kind": "Reboot", "notice": 1e18}, "are 0 to 1000000000 seconds"),
        ({"kind": "Freeze", "duration": -5}, "are 0 to 1000000000 seconds"),
    )),
    *(Refusal(f"/_emulator/{what}", VM | body, INVALID, words, 400, "POST")
      for what, body, words in (
          ("partition", {"cut": "yes"}, "'cut' must be true or false"),
          ("partition", {"mode": "burn"}, "'mode' drop or reset"),
          ("partition", {"to": 7}, "'to' a host pattern"),
          ("disk", {"bytes_per_second": 0}, "1 or more, or null"),
      )),
    *(Refusal(f"/_emulator/{what}", {"vm": vm, **more}, "NotFound", "There is no VM", 404, "POST")
      for what, vm, more in (("partition", "nobody", {}), ("partition", None, {}),
                             ("events", "rk-1_9", {"kind": "Reboot"}))),
    Refusal("/_emulator/crash", VM, "OperationNotAllowed", "--hollow run nothing", 409, "POST"),
    Refusal("/_emulator/restore", {"scale_set": "rk-1", "count": 10**9}, INVALID, "1 to 1000", 400,
            "POST"),
    *(Refusal(f"/_emulator/requests?{query}", None, INVALID, "", 400, "GET")
      for query in ("path=(", "since=x", "limit=-1")),
]  # fmt: skip


async def test_a_slip_in_a_call_of_the_emulators_own_is_named(inside: Inside) -> None:
    (await inside.arm.put(f"{SETS}/rk-1", json=scale_set(1))).raise_for_status()
    await inside.pass_time(5)
    await check(inside, ADMIN)
