"""What would go wrong again on any machine is not tried again."""

from tests.scripted_node import boot, train
from tests.world import World
from trainer.contract import NOT_THE_MODEL, NodePhase

WHY = "train.jsonl, row 17: the chat template takes no tools. Mend the row"


async def test_an_error_that_no_second_try_mends_ends_the_job_at_once_with_its_own_words(
    world: World,
) -> None:
    job = await world.submit()
    nodes = await boot(world, str(job["id"]))
    number = await train(world, nodes, step=3)
    await nodes[0].say(NodePhase.FAILED, number, step=3, error=WHY, hopeless=True)
    await nodes[1].say(NodePhase.FAILED, number, step=3, error="a peer is gone")
    await world.tick(3)
    failed = await world.job(str(job["id"]))

    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "trainer_error"
    assert failed["error"]["message"] == WHY


async def test_an_error_of_another_kind_is_tried_again(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, str(job["id"]))
    number = await train(world, nodes, step=3)
    for node in nodes:
        await node.say(NodePhase.FAILED, number, step=3, error=WHY)
    again = await train(world, nodes, step=1)

    assert again > number
    assert (await world.job(str(job["id"])))["status"] == "running"


async def test_a_model_that_is_not_the_trained_one_fails_with_a_code_of_its_own(
    world: World,
) -> None:
    why = f"{NOT_THE_MODEL}: the exported files are not the model that was trained: 2 missing keys"
    job = await world.submit()
    nodes = await boot(world, str(job["id"]))
    number = await train(world, nodes, step=3)
    for node in nodes:
        await node.say(NodePhase.FAILED, number, step=3, error=why, hopeless=True)
    await world.tick(3)
    failed = await world.job(str(job["id"]))

    assert failed["error"] == {"code": "verification_failed", "message": why, "param": None}
