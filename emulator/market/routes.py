"""Where the market is asked."""

from emulator import usages
from emulator.market import (
    costs,
    images,
    placement,
    planted_prices,
    prices,
    quotas,
    resource_graph,
    restrictions,
    skus,
)
from emulator.parts import COMPUTE, GROUP, SUBSCRIPTION, Part

IN_COMPUTE = SUBSCRIPTION + COMPUTE
LOCATION = IN_COMPUTE + "/locations/{location}"
QUOTA = LOCATION + "/providers/Microsoft.Quota"
IMAGE = LOCATION + "/publishers/{publisher}/artifacttypes/vmimage/offers/{offer}/skus/{sku}"
COSTS = "/providers/Microsoft.CostManagement/query"

PART = Part(
    arm=[
        ("GET", "/api/retail/prices", prices.list_all),
        ("GET", IN_COMPUTE + "/skus", skus.list_all),
        ("GET", LOCATION + "/usages", usages.list_all),
        ("GET", IMAGE + "/versions", images.list_versions),
        ("GET", LOCATION + "/placementScores/spot", placement.metadata),
        ("POST", LOCATION + "/placementScores/spot/generate", placement.generate),
        ("GET", QUOTA + "/quotas", quotas.list_quotas),
        ("GET", QUOTA + "/quotas/{quota}", quotas.get_quota),
        ("PUT", QUOTA + "/quotas/{quota}", quotas.put_quota),
        ("PATCH", QUOTA + "/quotas/{quota}", quotas.put_quota),
        ("GET", QUOTA + "/usages", quotas.list_usages),
        ("GET", QUOTA + "/usages/{quota}", quotas.get_usage),
        ("GET", QUOTA + "/quotaRequests", quotas.list_requests),
        ("GET", QUOTA + "/quotaRequests/{quota}", quotas.get_request),
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
    chores=[quotas.decide],
)
