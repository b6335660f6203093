"""What may happen to a job while it lives, and how often."""

from random import Random

from service.cloud.provider import CloudError, Misconfigured, Throttled
from service.domain.lifecycle.elastic import ElasticNodes, GrowthOutlook
from tests.unit.lifecycle_service import SPOT, Decisions, Violation
from tests.unit.lifecycle_world import Life

CALM_TICKS = 600  # of 15 s: two and a half hours without a fault
_OUTLOOKS = (  # of an elastic job: growing pays always, never, or when more join at once
    GrowthOutlook(),
    GrowthOutlook(remaining=60.0, restart=60.0),
    GrowthOutlook(next_join=60.0, restart=25.0),
)
TICKS_TO_CANCEL = 8  # two minutes: members get one to stop


def live(
    seed: int, decisions: Decisions | None = None, elastic: ElasticNodes | None = None
) -> Life:
    """One life: anything may happen, then calm, and the job must come to its end."""
    rng = Random(seed)
    life = Life(rng, decisions)
    if elastic is not None:
        life.elastic, life.outlook = elastic, rng.choice(_OUTLOOKS)
    life.mortality = rng.choice((0.0, 0.3))
    life.duds = rng.choice((0.0, 0.3))
    life.total_steps = rng.choice((5, 40, 150))
    life.saves = rng.choice((0.0, 0.3))
    life.poison = rng.choice((0.0, 0.0, 0.1))
    for _ in range(rng.randrange(40)):  # half of them have come to training by then
        life.tick()
    names, weights = zip(*_drawn(rng).items(), strict=True)
    for name in rng.choices(names, weights, k=rng.randrange(4, 40)):
        _EVENTS[name](life)
        life.check()
    calm(life, cancel=rng.random() < 0.5)
    return life


def calm(life: Life, *, cancel: bool) -> None:
    """No more faults and capacity for everybody; a pause is taken back."""
    life.mortality = life.duds = life.poison = 0.0
    life.cloud.fail_next.clear()
    life.cloud.lose_answers = 0
    life.cloud.sold_out.clear()
    life.cloud.sold_out_late.clear()
    life.cloud.partial.clear()
    life.wish(cancel=cancel, pause=False)
    for ticks in range(CALM_TICKS):
        if life.over():
            return
        if cancel and ticks > TICKS_TO_CANCEL and life.live():
            raise Violation("a cancel is granted soon", life.standing())
        life.tick()
    raise Violation("every job comes to its end, and nothing is left", life.standing())


def _drawn(rng: Random) -> dict[str, float]:
    """No two lives are alike: each draws its own bias for every fault."""
    return {name: 12.0 if name == "run" else rng.choice((0.0, 0.3, 1.0, 2.0)) for name in _EVENTS}


def _run(life: Life) -> None:
    seconds = life.rng.choice((1, 5, 15, 15, 60))
    for _ in range(life.rng.randrange(1, 13)):
        life.tick(seconds)


def _service_is_down(life: Life) -> None:
    for _ in range(life.rng.randrange(1, 30)):
        life.tick(60, service=False)


def _cloud_fails(life: Life) -> None:
    faults = (CloudError("?"), Throttled("slowly"), Misconfigured("no role"))
    life.cloud.fail_next += life.rng.choices(faults, k=life.rng.randrange(1, 4))


def _answers_get_lost(life: Life) -> None:
    life.cloud.lose_answers += 1


def _capacity_changes(life: Life) -> None:
    cloud = life.cloud
    cloud.sold_out.clear()
    cloud.sold_out_late.clear()
    cloud.partial.clear()
    match life.rng.randrange(4):
        case 0:
            cloud.sold_out.add(SPOT)
        case 1:
            cloud.sold_out_late.add(SPOT)
        case 2:
            cloud.partial[SPOT] = 1
        case _:
            pass  # there is enough again


def _eviction(life: Life) -> None:
    """Azure takes a machine, which then lingers perhaps; or announces that it will."""
    nodes = list(life.living())
    if not nodes:
        return
    node = life.rng.choice(nodes)
    if life.rng.random() < 0.4 and not node.doomed:
        node.doomed = True
        return
    name = f"rk-{node.attempt_id.removeprefix('att-')}"
    instances = life.cloud._entries[name].instances
    number = next(k for k, i in instances.items() if i.vm_id == node.vm_id)
    life.cloud.evict(name, number, lingers=life.rng.random() < 0.3)


def _everything_is_evicted(life: Life) -> None:
    for node in list(life.living()):
        name = f"rk-{node.attempt_id.removeprefix('att-')}"
        life.cloud._entries[name].instances.clear()


def _trainer_fails(life: Life) -> None:
    if running := [n for n in life.living() if n.trains]:
        life.crash(life.rng.choice(running))


def _supervisor_restarts(life: Life) -> None:
    if nodes := list(life.living()):
        life.rng.choice(nodes).restarts()


def _node_falls_silent(life: Life) -> None:
    if nodes := list(life.living()):
        node = life.rng.choice(nodes)
        node.silent = not node.silent
        node.hung = node.hung or life.rng.random() < 0.3


def _pause(life: Life) -> None:
    life.wish(pause=True)


def _resume(life: Life) -> None:
    life.wish(pause=False)


def _cancel(life: Life) -> None:
    if life.rng.random() < 0.3:
        life.wish(cancel=True)


_EVENTS = {
    "run": _run,
    "the service is down": _service_is_down,
    "the cloud fails": _cloud_fails,
    "answers get lost": _answers_get_lost,
    "capacity changes": _capacity_changes,
    "an eviction": _eviction,
    "everything is evicted": _everything_is_evicted,
    "a trainer fails": _trainer_fails,
    "a supervisor restarts": _supervisor_restarts,
    "a node falls silent": _node_falls_silent,
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
}
