"""Templates unrolled: loops, conditions, children, symbols, and what is refused before all."""

import pytest

from tests.emulated.inside import GROUP_ID, Inside
from tests.unit.emulator.deployments.deployed import (
    DEPLOYMENTS,
    Json,
    account,
    body,
    deploy,
    network,
    refusal,
    template,
)

ACCOUNTS = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts"


async def names(inside: Inside) -> list[str]:
    """Return the names of all resources of the group."""
    rows = (await inside.arm.get(f"{GROUP_ID}/resources")).json()["value"]
    return [row["name"] for row in rows]


async def test_what_a_condition_rules_out_is_not_made_and_not_waited_for(inside: Inside) -> None:
    unwanted = account("unwanted", condition="[greater(1, 2)]")
    wanted = template(unwanted, account("wanted", dependsOn=["unwanted"]))

    await deploy(inside, wanted)

    assert await names(inside) == ["wanted"]


async def test_children_may_be_nested_and_still_have_to_wait(inside: Inside) -> None:
    nested = {
        "type": "blobServices",
        "apiVersion": "2024-01-01",
        "name": "default",
        "dependsOn": ["[resourceId('Microsoft.Storage/storageAccounts', 'account')]"],
        "properties": {"isVersioningEnabled": True},
    }
    await deploy(inside, template(account(resources=[nested])))

    found = (await inside.arm.get(f"{ACCOUNTS}/account/blobServices/default")).json()
    assert found["properties"]["isVersioningEnabled"] is True


async def test_a_child_that_does_not_wait_for_its_parent_fails(inside: Inside) -> None:
    early = account("account/default", type="Microsoft.Storage/storageAccounts/blobServices")

    shown = await deploy(inside, template(early, account()))

    [detail] = shown["error"]["details"]
    assert (shown["error"]["code"], detail["code"]) == (
        "DeploymentFailed",
        "ParentResourceNotFound",
    )


LOOSE = {"type": "string"}
BAD: list[tuple[Json, dict[str, Json], str]] = [
    (
        template(account(dependsOn=["gone"])),
        {},
        "The resource 'gone' is not defined in the template",
    ),
    (template(account(), account()), {}, "is defined multiple times in a template"),
    (template(account("a/b")), {}, "has incorrect segment lengths"),
    (
        template(account("aaa", dependsOn=["bbb"]), account("bbb", dependsOn=["aaa"])),
        {},
        "Circular dependency detected on resource",
    ),
    (
        template(account("[reference('x').name]")),
        {},
        "The template function 'reference' is not expected",
    ),
    (template(account("[nonsense()]")), {}, "The template function 'nonsense' is not valid"),
    (template(account(copy={"name": "c", "count": -1})), {}, "unrolls no copy"),
    (template(account(apiVersion="")), {}, "'apiVersion' is required"),
    (
        template(parameters={"p": LOOSE}),
        {},
        "The value for the template parameter 'p' is not provided",
    ),
    (template(parameters={"p": LOOSE}), {"p": 1}, "Expected 'string'. Actual 'int'"),
    (
        template(parameters={"p": LOOSE}),
        {"p": "a", "q": 1},
        "'q' in the parameters file are not valid",
    ),
    (
        template(parameters={"p": LOOSE | {"allowedValues": ["a"]}}),
        {"p": "b"},
        "not part of the allowed value(s): 'a'",
    ),
    (template(parameters={"p": LOOSE | {"minLength": 3}}), {"p": "b"}, "minLength '3'"),
    (template(parameters={"p": {"type": "int", "maxValue": 3}}), {"p": 4}, "maxValue '3'"),
    (template(parameters={"p": {"type": "what"}}), {"p": 4}, "has no valid type"),
    ({"resources": []}, {}, "Required property '$schema' not found"),
    (template() | {"resources": 7}, {}, "must be an array"),
    (template() | {"$schema": "https://else"}, {}, "is not supported"),
    ([], {}, "The template must be an object"),
]


@pytest.mark.parametrize(("wanted", "passed", "complaint"), BAD, ids=[case[2][:40] for case in BAD])
async def test_a_template_that_makes_no_sense_is_refused_at_once(
    inside: Inside, wanted: Json, passed: dict[str, Json], complaint: str
) -> None:
    code, message = await refusal(inside, wanted, **passed)
    validated = await inside.arm.post(f"{DEPLOYMENTS}/d/validate", json=body(wanted, **passed))

    assert code == "InvalidTemplate"
    assert message.startswith("Deployment template validation failed: '")
    assert complaint in message
    assert validated.json()["error"] == {"code": code, "message": message}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (account("UPPER"), "AccountNameInvalid"),
        (account(sku={"name": "Standard_Cheap"}), "InvalidRequestPropertyValue"),
        (account(location="atlantis"), "LocationNotAvailableForResourceType"),
        (account(type="Microsoft.Storage/boxes"), "InvalidResourceType"),
        (account(type="Contoso.Things/boxes"), "InvalidResourceNamespace"),
        (
            network(properties={"addressSpace": {"addressPrefixes": ["10.0.0.1/8"]}}),
            "InvalidCIDRNotation",
        ),
    ],
)
async def test_what_a_provider_would_refuse_is_told_before_anything_is_made(
    inside: Inside, resource: Json, code: str
) -> None:
    answer = await inside.arm.put(
        f"{DEPLOYMENTS}/d", json=body(template(network("first"), resource))
    )

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "InvalidTemplateDeployment")
    assert [detail["code"] for detail in error["details"]] == [code]
    assert await names(inside) == []
