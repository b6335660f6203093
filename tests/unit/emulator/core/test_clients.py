"""What clients other than ours ask, in the form in which they ask it."""

import httpx

from tests.emulated.inside import HERE, SETS, Inside
from tests.emulated.process import GROUP

IMAGES = f"{HERE}/providers/Microsoft.Compute/locations/eastus/publishers"
UBUNTU = f"{IMAGES}/Canonical/artifacttypes/vmimage/offers/ubuntu-24_04-lts/skus/server/versions"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_empty_segments_of_a_path_are_passed_over(inside: Inside) -> None:
    answer = await inside.arm.get(f"https://azure/{HERE}//resourceGroups/{GROUP}")

    assert answer.json()["name"] == GROUP


async def test_providers_and_regions_are_told(inside: Inside) -> None:
    every = (await inside.arm.get(f"{HERE}/providers")).json()["value"]
    one = (await inside.arm.post(f"{HERE}/providers/microsoft.compute/register")).json()
    regions = (await inside.arm.get(f"{HERE}/locations")).json()["value"]

    assert {"Microsoft.Network", "Microsoft.Storage"} <= {row["namespace"] for row in every}
    assert one["registrationState"] == "Registered"
    assert "virtualMachineScaleSets" in {row["resourceType"] for row in one["resourceTypes"]}
    assert {"westeurope", "eastus", "japaneast"} <= {row["name"] for row in regions}
    assert refusal(await inside.arm.get(f"{HERE}/providers/Contoso.Things"))[0] == 404


async def test_an_image_is_found_as_az_looks_for_it(inside: Inside) -> None:
    publishers = [row["name"] for row in (await inside.arm.get(IMAGES)).json()]
    (latest,) = (await inside.arm.get(UBUNTU, params={"$top": "1"})).json()
    image = (await inside.arm.get(f"{UBUNTU}/{latest['name']}")).json()

    assert "Canonical" in publishers
    assert image["properties"]["osDiskImage"]["operatingSystem"] == "Linux"
    assert (
        await inside.arm.get(f"{IMAGES}/Nobody/artifacttypes/vmimage/offers")
    ).status_code == 404


async def test_a_flexible_scale_set_may_know_nothing_of_its_vms(inside: Inside) -> None:
    bare = {"orchestrationMode": "Flexible", "platformFaultDomainCount": "1"}
    body = {"location": "eastus", "properties": bare | {"platformFaultDomainCount": 1}}
    made = await inside.arm.put(f"{SETS}/rk", json=body)

    assert made.status_code == 201
    assert "sku" not in made.json()


async def test_common_sizes_are_sold_in_every_region(inside: Inside) -> None:
    place = "location eq 'japaneast'"
    url = f"{HERE}/providers/Microsoft.Compute/skus"
    rows = (await inside.arm.get(url, params={"$filter": place})).json()["value"]

    names = {row["name"] for row in rows}
    assert {"Standard_D4s_v5", "Standard_E4s_v5", "Standard_F4s_v2"} <= names
    assert {"Standard_NC4as_T4_v3", "Standard_ND96isr_H200_v5"} <= names
