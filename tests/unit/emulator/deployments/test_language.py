"""The language of templates: every function that we have, and what it says when it cannot."""

import pytest

from emulator.deployments.expressions import (
    FunctionCall,
    Literal,
    MemberAccess,
    TemplateError,
    parse,
)
from tests.emulated.inside import GROUP_ID, Inside
from tests.unit.emulator.deployments.deployed import Json, deploy, template, value_of

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
    (
        "[resourceId('Microsoft.Network/virtualNetworks/subnets', 'n', 's')]",
        f"{GROUP_ID}/providers/Microsoft.Network/virtualNetworks/n/subnets/s",
    ),
    (
        "[subscriptionResourceId('Microsoft.A/b', 'c')]",
        f"{SUBSCRIPTION_ID}/providers/Microsoft.A/b/c",
    ),
    ("[providers('Microsoft.Compute', 'virtualMachineScaleSets').apiVersions[0]]", "2026-04-01"),
]


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[case[0][:40] for case in VALUES])
async def test_an_expression_has_a_value(inside: Inside, expression: str, value: Json) -> None:
    found = await value_of(inside, expression)

    if value is None:
        assert "doesn't exist, available properties are" in found["message"]
    else:
        assert found == value


async def test_unique_strings_and_guids_are_the_same_every_time(inside: Inside) -> None:
    one, same, other = [
        await value_of(inside, [f"[uniqueString('a', '{b}')]", f"[guid('a', '{b}')]"])
        for b in "bbc"
    ]

    assert one == same
    assert not set(one) & set(other)
    assert len(one[0]) == 13
    assert one[1] == "2d796349-8c7e-55ec-9624-54ece82ed031"  # Azure's own


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
    wanted = template(
        parameters={"password": {"type": "secureString"}, "plain": {"type": "string"}},
        outputs={"out": {"type": "secureString", "value": "[parameters('password')]"}},
    )

    shown = await deploy(inside, wanted, password="hush-hush", plain="open")

    assert shown["parameters"]["plain"]["value"] == "open"
    assert shown["parameters"]["password"] == {"type": "SecureString"}
    assert "hush-hush" not in str(shown)
    assert "hush-hush" not in str(inside.fabric.state.resources)
