"""Machines of a running stack, seen from outside."""

from pathlib import Path

from rekindle.local.running_stack import LocalMachine

ATTEMPT = "att-01jd8m4x9g5v0c3k2n7p6q8r1s"


def machine(scale_set: str) -> LocalMachine:
    return LocalMachine(
        scale_set=scale_set,
        instance_id="0",
        name=f"{scale_set}_0",
        vm_id="vm",
        address="127.0.0.1",
        region="eastus",
        vm_size="Standard_ND96amsr_A100_v4",
        state="running",
        pid=1,
        folder=Path(),
        metadata_url="",
    )


def test_a_machine_belongs_to_the_attempt_that_its_scale_set_is_named_after() -> None:
    assert machine("rk-01jd8m4x9g5v0c3k2n7p6q8r1s").belongs_to(ATTEMPT)
    assert not machine("rk-01jd8m4x9g5v0c3k2n7p6q8r1t").belongs_to(ATTEMPT)


def test_a_node_of_a_cluster_belongs_to_the_attempt_whose_name_the_cluster_shortens() -> None:
    assert machine("rk-m4x9g5v0c3k2n7p6q8r1s-0f3a5b7c").belongs_to(ATTEMPT)
    assert not machine("rk-m4x9g5v0c3k2n7p6q8r1t-0f3a5b7c").belongs_to(ATTEMPT)
