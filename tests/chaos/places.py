"""Where in the service something is written outside: found in its text, to see what no life met.

`met.txt` says which play comes to each place first; `python -m tests.chaos --harm --storms 0
--record` writes it.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import service
from tests.scenario.seams import WRITES

FOLDERS = ("api", "operations", "reconciler")
CLOUD = frozenset({"create", "refill", "delete"})
CLOUDS = frozenset({"cloud", "cloud_in_region"})  # what it is called
COMMITS = {("engine", "begin")}
EXCUSED = {  # no play comes there, and why
    "commit api/projects/sign_in.py exchange": (
        "no life signs in; a token that was used up without an answer opens nothing, and another "
        "link is made: tests/integration/api/projects/test_keys.py"
    ),
    "commit reconciler/jobs/launch.py _retry_soon": (
        "another job must take the cores between two statements of one step, again and again: a "
        "life has two others at most"
    ),
    "commit reconciler/jobs/model_registry.py _record_result": (
        "no life has a workspace; killed before it, the model is registered again: "
        "tests/integration/jobs/test_trackers.py"
    ),
    "commit reconciler/jobs/trackers.py run_once": (
        "no life has a tracker; a claim ends by itself: tests/integration/jobs/test_trackers.py "
        "kills it and asks two replicas"
    ),
    "commit reconciler/jobs/trackers.py _update_run": (
        "the same; killed before it, the tracker is asked what it has"
    ),
    "commit reconciler/jobs/launch.py _return_to_spot": (
        "on demand, until Spot's market has said yes for long: "
        "tests/integration/money/test_deadlines.py; it writes a request as enforce_deadline"
    ),
    "commit reconciler/jobs/jobs.py _pause_job": (
        "three starts of half an hour each, and a life has as much in all; one guarded move, as "
        "_fail_job's: tests/integration/jobs/test_job_troubles.py"
    ),
    "commit api/deps.py get_connection": (
        "only API keys are written there, and a life has its own: "
        "tests/integration/api/projects/test_keys.py; one that was made and never told of opens "
        "nothing"
    ),
    "commit operations/files/files.py record_progress": (
        "it writes how far a long upload is, and a life's takes no time; without it only what is "
        "shown is lost: tests/integration/sweeps/test_upload_sweep.py"
    ),
    "commit reconciler/attempts/attempts.py _intend_creation": (
        "no life's creation waits for a token; killed after it, the creation is made again and only"
        " the provisioning timeout begins later: tests/integration/cloud/test_kept_deferrals.py"
    ),
    "commit reconciler/attempts/attempts.py _refill": (
        "no life's cloud refuses a refill at once; it tells of the first refusal: "
        "tests/integration/attempts/test_elastic_jobs.py"
    ),
    "commit api/nodes.py _raise_directive_number": (
        "only a database that was restored has forgotten directives: "
        "tests/integration/attempts/test_restored_database.py; done twice it changes nothing more"
    ),
    "commit operations/jobs/preflights.py _report_progress": (
        "it writes how far a long check is, and a life's takes no time; without it another "
        "replica begins anew"
    ),
    "commit reconciler/jobs/preparation.py _report_progress": (
        "the same, of the job: a life's checks are done when they are looked at first"
    ),
    "commit operations/money/price_memory.py remove_doubt": "as save_doubt, below",
    "commit operations/money/price_memory.py save_doubt": (
        "a life's prices come from a table that has no doubts: "
        "tests/contract/pricing/test_price_memory.py"
    ),
    "delete operations/models/model_deletion.py delete": "as its commit, below",
    "write operations/storage/checkpoint_deletion.py _remove_from_head": "as its commit, below",
    "delete operations/storage/checkpoint_deletion.py _delete_folder": "as its commit, below",
    "commit operations/storage/checkpoint_deletion.py delete": (
        "no life deletes a checkpoint by name; killed anywhere it is done again: "
        "tests/integration/api/models/test_checkpoint_models.py"
    ),
    "commit operations/models/model_deletion.py delete": (
        "no life deletes its model; done twice it is harmless: "
        "tests/integration/api/models/test_lineage.py"
    ),
    "commit api/planning/plans.py create": (
        "a plan that was kept and never told of expires after a day, and no job depends on it: "
        "tests/integration/api/views/test_plans.py"
    ),
    "commit operations/files/files.py expire": (
        "no life's file expires; it hides a file as delete does: "
        "tests/integration/api/files/test_file_forms.py"
    ),
    **dict.fromkeys(
        (
            "create_container operations/files/uploads.py create",
            "commit operations/files/uploads.py create",
            "stage operations/files/uploads.py add_part",
            "commit operations/files/uploads.py add_part",
            "commit operations/files/uploads.py cancel",
            "discard operations/files/uploads.py discard",
            "commit operations/files/upload_completion.py complete",
            "commit operations/files/upload_completion.py _check",
            "commit operations/files/upload_completion.py _record_progress",
            "commit operations/files/upload_completion.py _complete_claimed",
            "commit operations/files/upload_completion.py _refuse",
            "commit operations/files/upload_completion.py _release",
            "discard reconciler/sweeps/uploads.py _discard_blocks",
        ),
        (
            "a life's files come in one request: "
            "tests/integration/api/files/test_uploads_in_parts.py and test_upload_completion.py "
            "kill it around the commit, and leave what dies to the sweep"
        ),
    ),
    "commit reconciler/sweeps/untracked_resources.py run_once": (
        "no life has one; killed before it, the next look tells of it: "
        "tests/integration/sweeps/test_unknown_containers.py"
    ),
    "commit reconciler/sweeps/containers.py run_once": (
        "the same, of containers that no job has: "
        "tests/integration/sweeps/test_unknown_containers.py"
    ),
    "commit reconciler/sweeps/pruning.py run_once": (
        "it deletes what Azure told over a year ago, and a life has none: "
        "tests/integration/sweeps/test_pruning.py; done twice it deletes nothing more"
    ),
}
MET = Path(__file__).parent / "met.txt"


def all_places() -> set[str]:
    """Return every place with an effect, as "create reconciler/attempts/attempts.py _create".

    Transactions that only read are among them: which one writes is known when it runs. Those that
    are EXCUSED are not.
    """
    root = Path(service.__file__).parent
    code_places: set[str] = set()
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            code_places.update(_of(ast.parse(file.read_text()), file.relative_to(root).as_posix()))
    return code_places - EXCUSED.keys()


def met() -> dict[str, str]:
    """Return the play that comes to each place first, as recorded."""
    lines = MET.read_text().splitlines()
    return {place: play for place, _, play in (line.partition(": ") for line in lines)}


def record(by_play: Mapping[str, set[str]]) -> None:
    """Write down what each play has met; the plays in their order."""
    first: dict[str, str] = {}
    for play, places in by_play.items():
        for place in places:
            first.setdefault(place, play)
    MET.write_text("".join(f"{place}: {play}\n" for place, play in sorted(first.items())))


def _of(tree: ast.AST, file: str) -> Iterator[str]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            seam, verb = _last_name(node.func.value), node.func.attr
            if (seam, verb) in COMMITS:
                yield f"commit {file} {function.name}"
            if (seam in CLOUDS and verb in CLOUD) or (seam == "store" and verb in WRITES):
                yield f"{verb} {file} {function.name}"


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):  # self._cloud(row).create(...)
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):  # self._engine.begin()
        return node.attr.lstrip("_")
    return node.id if isinstance(node, ast.Name) else ""
