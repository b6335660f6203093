"""The tables of Resource Graph that there are: Resources, ResourceContainers, SpotResources."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from emulator.access import enforcement
from emulator.access.directory import TENANT
from emulator.access.enforcement import Caller
from emulator.catalog import Offer, catalog
from emulator.fabric import Fabric
from emulator.market.kql_expressions import Row
from emulator.views import scale_set_body

COLUMNS = (
    "id", "name", "type", "tenantId", "kind", "location", "resourceGroup", "subscriptionId",
    "managedBy", "sku", "plan", "properties", "tags", "identity", "zones", "extendedLocation",
)  # fmt: skip
ALTERNATIVES = 3


def tables(fabric: Fabric, caller: Caller, subscriptions: list[str]) -> Callable[[str], list[Row]]:
    """The rows of a table that the caller may read in the subscriptions, or in all."""
    wanted = {name.lower() for name in subscriptions}

    def rows(table: str) -> list[Row]:
        sees = enforcement.readable(fabric, caller)
        found = TABLES[table](fabric)
        mine = [r for r in found if not r["subscriptionId"] or sees(r["id"])]
        return [r for r in mine if not wanted or r["subscriptionId"].lower() in (*wanted, "")]

    return rows


def _row(**members: Any) -> Row:  # noqa: ANN401 - JSON
    empty: dict[str, Any] = dict.fromkeys(COLUMNS)
    texts = {"kind": "", "managedBy": "", "resourceGroup": "", "subscriptionId": ""}
    return empty | texts | {"tenantId": TENANT} | members


def _resources(fabric: Fabric) -> list[Row]:
    found = [_resource(scale_set_body(s), s.id) for s in fabric.state.visible()]
    return found + [
        _resource({**r.body, "location": r.location, "type": r.type}, r.id)
        for r in fabric.state.resources.values()
        if r.tracked
    ]


def _resource(body: dict[str, Any], id_: str) -> Row:
    parts = id_.split("/")
    known = {name: body[name] for name in COLUMNS if name in body}
    names = {"id": id_, "name": parts[-1], "type": str(body.get("type", "")).lower()}
    return _row(**known | names, resourceGroup=parts[4].lower(), subscriptionId=parts[2])


def _containers(fabric: Fabric) -> list[Row]:
    return [
        _row(
            id=f"/subscriptions/{g.subscription}/resourceGroups/{g.name}",
            name=g.name,
            type="microsoft.resources/subscriptions/resourcegroups",
            location=g.location,
            resourceGroup=g.name.lower(),
            subscriptionId=g.subscription,
            tags=g.tags,
            properties={"provisioningState": "Deleting" if g.deleting else "Succeeded"},
        )
        for g in fabric.state.groups.values()
    ]


def _spot(fabric: Fabric) -> list[Row]:
    return [row for offer in catalog().offers for row in _of_offer(fabric, offer)]


def _of_offer(fabric: Fabric, offer: Offer) -> list[Row]:
    now, place, size = fabric.now(), offer.location, offer.size.name
    history = [
        {"effectiveDate": _time(at), "priceUSD": float(price)}
        for at, price in fabric.weather.price_history(place, size, now)
    ]
    band = fabric.weather.eviction_band(place, size, now)
    others = [{"vmSku": name} for name in _alternatives(offer)]
    return [
        _spot_row(
            offer,
            "skuspotpricehistory/ostype/location",
            {"osType": "Linux", "spotPrices": history},
            "linux",
        ),
        _spot_row(offer, "skuspotevictionrate/location", {"evictionRate": band}),
        _spot_row(offer, "skualternativespotvmsize/location", {"alternativeSkus": others}),
    ]


def _spot_row(offer: Offer, kind: str, properties: dict[str, Any], system: str = "") -> Row:
    size = offer.size.name.lower()
    name = "/".join(part for part in (size, system, offer.location) if part)
    type_ = f"microsoft.compute/{kind}"
    return _row(
        id=f"/providers/{type_}/{uuid.uuid5(uuid.NAMESPACE_URL, f'{type_}/{name}')}",
        name=name,
        type=type_,
        kind=system,
        location=offer.location,
        sku={"name": size},
        properties=properties,
    )


def _alternatives(offer: Offer) -> list[str]:
    """Other sizes in the region, those with as many GPUs first; how Azure chooses is not told."""
    there = [o for o in catalog().offers if o.location == offer.location and o.size != offer.size]
    there.sort(key=lambda o: (abs(o.size.gpus - offer.size.gpus), o.spot, o.size.name))
    return [o.size.name for o in there[:ALTERNATIVES]]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


TABLES: dict[str, Callable[[Fabric], list[Row]]] = {
    "resources": _resources,
    "resourcecontainers": _containers,
    "spotresources": _spot,
}
