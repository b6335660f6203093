"""What `rekindle plan` shows, and that `rekindle submit` takes the plan."""

from tests.integration.cli.conftest import Shell
from tests.world import MODEL


async def test_a_plan_shows_time_cost_memory_and_how_to_submit_it(shell: Shell) -> None:
    ended = await shell.run("plan", shell.dataset(), "--model", MODEL, "--nodes", "2")

    assert ended.code == 0, ended
    assert "2 x Standard_ND96amsr_A100_v4 in eastus (spot)" in ended.out
    assert "GiB per GPU: " in ended.out
    assert "--set plan=plan-" in ended.out
    assert (await shell.run("list", "--json")).json["data"] == []


async def test_submit_takes_a_plan_and_uploads_the_file_no_second_time(shell: Shell) -> None:
    asked = (shell.dataset(), "--model", MODEL, "--json")
    plan = (await shell.run("plan", *asked)).json
    job = (await shell.run("submit", *asked, "--set", f"plan={plan['id']}")).json
    files = (await shell.run("files", "list", "--json")).json["data"]

    assert job["plan"]["cost_p50"] == plan["chosen"]["cost_p50"]
    assert [file["id"] for file in files] == [job["training_file"]]
