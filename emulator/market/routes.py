"""Where the market is asked."""

from emulator.compute import images, usages
from emulator.market import (
    costs,
    placement,
    planted_prices,
    prices,
    resource_graph,
    restrictions,
    skus,
)
from emulator.parts import COMPUTE, GROUP, SUBSCRIPTION, AzurePart

IN_COMPUTE = SUBSCRIPTION + COMPUTE
LOCATION = IN_COMPUTE + "/locations/{location}"
COSTS = "/providers/Microsoft.CostManagement/query"

PART = AzurePart(
    arm=[
        ("GET", "/api/retail/prices", prices.list_all),
        ("GET", IN_COMPUTE + "/skus", skus.list_all),
        ("GET", LOCATION + "/usages", usages.list_all),
        *(("GET", path, images.list_images) for path in images.PATHS),
        ("POST", LOCATION + "/placementScores/spot/generate", placement.generate),
        ("POST", "/providers/Microsoft.ResourceGraph/resources", resource_graph.resources),
        ("POST", SUBSCRIPTION + COSTS, costs.query),
        ("POST", GROUP + COSTS, costs.query),
    ],
    admin=[
        ("POST", "/_emulator/market/restrictions", restrictions.restrict),
        ("GET", "/_emulator/market/restrictions", restrictions.list_all),
        ("POST", "/_emulator/market/prices", planted_prices.plant),
        ("GET", "/_emulator/market/prices", planted_prices.list_all),
        ("DELETE", "/_emulator/market/prices", planted_prices.clear),
    ],
)
