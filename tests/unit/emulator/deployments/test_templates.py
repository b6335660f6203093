"""Templates unrolled, the language in them, and what is refused before all."""

import pytest

from emulator.deployments.expressions import (
    FunctionCall,
    Literal,
    MemberAccess,
    TemplateError,
    parse,
)
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
    value_of,
)

ACCOUNTS = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts"


async def names(inside: Inside) -> list[str]:
    """Return the names of all resources of the group."""
    rows = (await inside.arm.get(f"{GROUP_ID}/resources")).json()["value"]
    return [row["name"] for row in rows]


async def test_what_a_condition_rules_out_is_not_made_and_not_waited_for(inside: Inside) -> None:
    unwanted = account("unwanted", condition="[greater(1, 2)]")
    template_body = template(unwanted, account("wanted", dependsOn=["unwanted"]))

    await deploy(inside, template_body)

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

    service = (await inside.arm.get(f"{ACCOUNTS}/account/blobServices/default")).json()
    assert service["properties"]["isVersioningEnabled"] is True


LOOSE = {"type": "string"}
BAD: list[tuple[Json, dict[str, Json], str]] = [
    (template(account(dependsOn=["gone"])), {},
     "The resource 'gone' is not defined in the template"),
    (template(account(), account()), {}, "is defined multiple times in a template"),
    (template(account("a/b")), {}, "has incorrect segment lengths"),
    (template(account("aaa", dependsOn=["bbb"]), account("bbb", dependsOn=["aaa"])), {},
     "Circular dependency detected on resource"),
    (template(account("[reference('x').name]")), {},
     "The template function 'reference' is not expected"),
    (template(account("[nonsense()]")), {}, "The template function 'nonsense' is not valid"),
    (template(account(copy={"name": "c", "count": -1})), {}, "unrolls no copy"),
    (template(account(apiVersion="")), {}, "'apiVersion' is required"),
    (template(parameters={"p": LOOSE}), {},
     "The value for the template parameter 'p' is not provided"),
    (template(parameters={"p": LOOSE}), {"p": 1}, "Expected 'string'. Actual 'int'"),
    (template(parameters={"p": LOOSE}), {"p": "a", "q": 1},
     "'q' in the parameters file are not valid"),
    (template(parameters={"p": LOOSE | {"allowedValues": ["a"]}}), {"p": "b"},
     "not part of the allowed value(s): 'a'"),
    (template(parameters={"p": LOOSE | {"minLength": 3}}), {"p": "b"}, "minLength '3'"),
    (template(parameters={"p": {"type": "int", "maxValue": 3}}), {"p": 4}, "maxValue '3'"),
    (template(parameters={"p": {"type": "what"}}), {"p": 4}, "has no valid type"),
    ({"resources": []}, {}, "Required property '$schema' not found"),
    (template() | {"resources": 7}, {}, "must be an array"),
    (template() | {"$schema": "https://else"}, {}, "is not supported"),
    ([], {}, "The template must be an object"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("template_body", "passed", "complaint"), BAD, ids=[case[2][:40] for case in BAD]
)
async def test_a_template_that_makes_no_sense_is_refused_at_once(
    inside: Inside, template_body: Json, passed: dict[str, Json], complaint: str
) -> None:
    code, message = await refusal(inside, template_body, **passed)
    validated = await inside.arm.post(
        f"{DEPLOYMENTS}/d/validate", json=body(template_body, **passed)
    )

    assert code == "InvalidTemplate"
    assert message.startswith("Deployment template validation failed: '")
    assert complaint in message
    assert validated.json()["error"] == {"code": code, "message": message}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (account("UPPER"), "AccountNameInvalid"),
        (account(type="Microsoft.Storage/boxes"), "InvalidResourceType"),
        (
            network(properties={"addressSpace": {"addressPrefixes": ["10.0.0.1/8"]}}),
            "InvalidCIDRNotation",
        ),
    ],
)
async def test_what_a_provider_would_refuse_is_told_before_anything_is_made(
    inside: Inside, resource: Json, code: str
) -> None:
    response = await inside.arm.put(
        f"{DEPLOYMENTS}/d", json=body(template(network("first"), resource))
    )

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "InvalidTemplateDeployment")
    assert [detail["code"] for detail in error["details"]] == [code]
    assert await names(inside) == []


SUBSCRIPTION_ID = GROUP_ID.partition("/resourceGroups/")[0]


def test_an_expression_is_calls_members_and_literals() -> None:
    node = parse("f('it''s', -2).a[0]")

    call = FunctionCall("f", (Literal("it's"), Literal(-2)))
    assert node == MemberAccess(MemberAccess(call, Literal("a")), Literal(0))


@pytest.mark.parametrize(
    "text", ["", "f(", "f(1,)", "f(1 2)", "f()]", "f().", "f()[", "'open", "#", "f(" * 200, "()"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        parse(text)


VALUES: list[tuple[str, Json]] = [
    ("[concat('a', 1, not(greater(1, 2)))]", "a1True"),
    ("[format('{0}-{1}-{{x}}', 'a', 7)]", "a-7-{x}"),
    ("[split('a,b', ',')]", ["a", "b"]),
    ("[empty('')]", True),
    ("[concat(last(split('a,b', ',')), take('abc', 2))]", "bab"),
    ("[max(1, 2)]", 2),
    ("[uriComponent('a b/c')]", "a%20b%2Fc"),
    ("[resourceGroup().b]", None),
    ("[resourceGroup().LOCATION]", "eastus"),
    ("[[not an expression]", "[not an expression]"),
    ("[subscription().id]", SUBSCRIPTION_ID),
    ("[resourceId('Microsoft.Network/virtualNetworks/subnets', 'n', 's')]",
     f"{GROUP_ID}/providers/Microsoft.Network/virtualNetworks/n/subnets/s"),
    ("[subscriptionResourceId('Microsoft.A/b', 'c')]",
     f"{SUBSCRIPTION_ID}/providers/Microsoft.A/b/c"),
    ("[providers('Microsoft.Compute', 'virtualMachineScaleSets').apiVersions[0]]", "2026-04-01"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[case[0][:40] for case in VALUES])
async def test_an_expression_has_a_value(inside: Inside, expression: str, value: Json) -> None:
    result = await value_of(inside, expression)

    if value is None:
        assert "doesn't exist, available properties are" in result["message"]
    else:
        assert result == value


async def test_unique_strings_and_guids_are_the_same_every_time(inside: Inside) -> None:
    first, repeated, other = [
        await value_of(inside, [f"[uniqueString('a', '{b}')]", f"[guid('a', '{b}')]"])
        for b in "bbc"
    ]

    assert first == repeated
    assert not set(first) & set(other)
    assert len(first[0]) == 13
    assert first[1] == "2d796349-8c7e-55ec-9624-54ece82ed031"  # Azure's own


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("[nonsense('a')]", "The template function 'nonsense' is not valid"),
        ("[not('seven')]", "'not': the type or number of its parameters is not valid"),
        ("[split('a')]", "'split': the type or number of its parameters is not valid"),
        ("[variables('gone')]", "The template variable 'gone' is not found"),
        ("[parameters('gone')]", "The template parameter 'gone' is not found"),
        ("[split('a', ',')[3]]", "array index '3' is out of bounds"),
        ("[resourceId('Microsoft.A/b/c', 'one')]", "requires '2' resource name argument(s)"),
        ("[reference()]", "function requires 1 to 3 argument(s) while 0 were provided"),
        ("[reference('nowhere')]", "The resource 'nowhere' is not defined in the template"),
    ],
)
async def test_an_expression_without_a_value_says_why(
    inside: Inside, expression: str, complaint: str
) -> None:
    error = await value_of(inside, expression)

    assert error["code"] == "DeploymentOutputEvaluationFailed"
    assert complaint in error["message"]


async def test_a_variable_that_refers_to_itself_is_no_endless_loop(inside: Inside) -> None:
    circle = {"a": "[variables('b')]", "b": "[variables('a')]"}

    error = await value_of(inside, "[variables('a')]", variables=circle)

    assert "refers to itself" in error["message"]


async def test_secrets_are_shown_neither_as_parameters_nor_as_outputs(inside: Inside) -> None:
    secret_template = template(
        parameters={"password": {"type": "secureString"}, "plain": {"type": "string"}},
        outputs={"out": {"type": "secureString", "value": "[parameters('password')]"}},
    )

    deployment = await deploy(inside, secret_template, password="hush-hush", plain="open")

    assert deployment["parameters"]["plain"]["value"] == "open"
    assert deployment["parameters"]["password"] == {"type": "SecureString"}
    assert "hush-hush" not in str(deployment)
    assert "hush-hush" not in str(inside.fabric.state.resources)


async def test_outputs_of_a_deployment_lose_their_capitals_as_in_arm(inside: Inside) -> None:
    names = ("VMSS", "TRANS_Test", "Name", "REKINDLE_CLOUD")
    outputs = {name: {"type": "string", "value": "x"} for name in names}

    deployment = await deploy(inside, template(outputs=outputs))

    assert list(deployment["outputs"]) == ["vmss", "tranS_Test", "name", "rekindlE_CLOUD"]
