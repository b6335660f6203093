"""Several replicas of the service, and the faults that strike them at random.

Clocks of replicas differ by up to 110 s. A replica is killed at a random point, loses answers or
stalls; one cannot reach Azure, Blob or PostgreSQL for some rounds; commits take seconds; every
connection to PostgreSQL ends, or the server is killed and restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sqlalchemy import text

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError
from tests.clock import Clock
from tests.scenario.replicas import Replica, Replicas, start
from tests.scenario.seams import SLOW_SECONDS, STALLS, Harm, Hook, Restart
from tests.world import World

SKEWS = (timedelta(0), timedelta(seconds=90), timedelta(seconds=-20))
APART = max(SKEWS) - min(SKEWS)
STRIKES = 6  # in one storm, on all replicas together
_HARMS = [h for h in Harm if h not in (Harm.BELATED, Harm.RESTART)]  # `disturb` restarts
SLEEPS = 12  # rounds
CUT_ROUNDS = 8
HELD_UP = timedelta(minutes=4)  # by a round of slow commits and by a replica that is cut off
PARTS = ("azure", "blob", "postgres")
TERMINATE = text(
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


@dataclass
class Skewed(Clock):
    """The clock of a machine, which differs from the world's by ``by``."""

    true: Clock = field(default_factory=Clock)
    by: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return self.true() + self.by


class Crew(Replicas):
    """Several replicas; ``dice`` chooses the one for the next piece of work."""

    def __init__(
        self,
        world: World,
        cloud: FakeCloud,
        dice: Random,
        restart: Restart,
        *,
        rate_limited: bool = False,
        skews: Sequence[timedelta] = SKEWS,
    ) -> None:
        self.dice, self.strikes_left, self.rate_limited = dice, STRIKES, rate_limited
        self.restart, self.skews = restart, skews
        self.slept: dict[int, int] = {}
        self.cut_for = 0
        self.world, self.cloud = world, cloud
        self.hook, self.strikes, self.asleep = Hook(), 0, []
        self.all = [self._fresh(skew) for skew in skews]
        self.now = self.all[0]

    async def turn(self, work: Any) -> Any:  # noqa: ANN401 - as the base has it
        """Let the chosen replica do ``work``, and choose the next one."""
        try:
            return await super().turn(work)
        finally:
            self.now = self.dice.choice(self.all)

    async def disturb(self) -> None:
        """Draw what happens to the replicas before a round."""
        draw = self.dice.random()
        self.cloud.fail_next.clear()
        for replica in self.all:  # each has read the database meanwhile: reconciler/loop.py
            replica.attempts.visibility.record_round(replica.attempts.now())
            replica.hook.commit_delay = 0.0
        self._cut_off()
        if draw < 0.02:
            await self.restart()
        elif draw < 0.05:
            async with self.world.engine.begin() as conn:
                await conn.execute(TERMINATE)
        elif draw < 0.10:
            faults = self.dice.randrange(1, 6)
            self.cloud.fail_next += [_unreachable() for _ in range(faults)]
        elif draw < 0.15:
            self.cloud.lose_answers += 1
        elif draw < 0.20:
            for replica in self.all:
                replica.hook.commit_delay = self.dice.uniform(1, SLOW_SECONDS)
        for hook, _ in self.asleep:
            self.slept[id(hook)] = self.slept.get(id(hook), 0) + 1
        if any(n >= SLEEPS for n in self.slept.values()):
            await self.wake()
            self.slept.clear()

    def restore(self) -> None:
        """Make everything reachable again for all replicas."""
        for replica in self.all:
            replica.hook.restore()

    def _cut_off(self) -> None:
        """Cut one replica off from one dependency for some rounds."""
        self.cut_for -= 1
        if self.cut_for == 0:
            self.restore()
        elif self.cut_for < 0 and self.dice.random() < 0.05:
            self.cut_for = self.dice.randrange(1, CUT_ROUNDS)
            self.dice.choice(self.all).hook.unreachable.add(self.dice.choice(PARTS))

    def _replace(self) -> None:
        """Replace the struck replica on the same machine, with the same clock skew."""
        self.strikes += 1
        index = self.all.index(self.now)
        self.all[index] = self._fresh(self.skews[index])
        self.now = self.all[index]

    def _fresh(self, skew: timedelta) -> Replica:
        hook = Hook()
        if self.strikes_left > 0:
            self.strikes_left -= 1
            hook = Hook(at=self.dice.randrange(5, 60), harm=self.dice.choice(_HARMS))
            if hook.harm in STALLS:
                hook.at, hook.at_transaction = 0, hook.at
        clock = Skewed(true=self.world.clock, by=skew)
        return start(self.world, self.cloud, hook, clock, rate_limited=self.rate_limited)


def _unreachable() -> CloudError:
    return CloudError("Azure does not answer")
