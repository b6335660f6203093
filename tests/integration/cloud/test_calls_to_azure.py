"""What jobs that train quietly cost of Azure's request limits, hour by hour."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

from service.cloud.fake import FakeCloud
from service.domain.cloud.fleet import ScaleSet
from service.domain.cloud.scale_set_list import OBSERVATION_INTERVAL
from tests.integration.cloud.test_lists_of_replicas import lister
from tests.nodes.scripted_node import ScriptedNode, boot, train
from tests.world import World
from trainer.contract import NodePhase

HOUR = timedelta(hours=1)
ROUND = timedelta(seconds=10)
_SETTLES = 30  # rounds, until all is as it stays


@dataclass
class Counting(FakeCloud):
    """Looks at sets, and lists of all."""

    asked: Counter[str] = field(default_factory=Counter)

    async def get(self, name: str) -> ScaleSet:
        self.asked[name] += 1
        return await super().get(name)

    async def list_owned(self) -> list[ScaleSet]:
        self.asked["list"] += 1
        return await super().list_owned()


async def test_a_quiet_attempt_is_asked_for_every_ten_minutes_and_all_are_listed_every_ten_seconds(
    world: World,
) -> None:
    cloud = Counting(**vars(world.cloud))
    world.cloud, world.attempts = cloud, replace(world.attempts, cloud=cloud)
    training: list[tuple[ScriptedNode, int]] = []
    for _ in range(2):
        nodes = await boot(world, (await world.submit())["id"])
        number = await train(world, nodes, step=1)
        training += [(node, number) for node in nodes]
    world.attempts = replace(world.attempts, lister=(listing := lister(world)))
    for n in range(-_SETTLES, HOUR // ROUND):
        if n == 0:
            cloud.asked.clear()
        if n % 6 == 0:
            for node, number in training:
                await node.say(NodePhase.RUNNING, number, step=2)
        world.clock.advance(seconds=ROUND.total_seconds())
        await listing.run_once()
        await world.attempts.run_once()
    lists = cloud.asked.pop("list")

    assert abs(lists - HOUR // ROUND) <= 1
    assert len(cloud.asked) == 2
    assert all(4 <= looks <= 8 for looks in cloud.asked.values()), cloud.asked
    assert HOUR / OBSERVATION_INTERVAL == 6
