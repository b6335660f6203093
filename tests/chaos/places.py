"""Find the places in the service's source that commit or write outside, to check plays reach all.

`reached.txt` names the first play that reaches each place; `python -m tests.chaos --harm --storms 0
--record` writes it.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import service
from tests.scenario.seams import WRITES

FOLDERS = ("api", "operations", "reconciler")
CLOUD = frozenset({"create", "refill", "delete"})
CLOUDS = frozenset({"cloud", "cloud_in_region"})  # names of variables
COMMITS = {("engine", "begin")}
EXCUSED = {  # places that no play reaches, and why
    "commit api/projects/sign_in.py exchange": (
        "no life signs in; a token used up without a response grants nothing, and the user "
        "requests another link: tests/integration/api/projects/test_keys.py"
    ),
    "commit reconciler/jobs/launch.py _retry_soon": (
        "it needs other jobs that take the cores between two statements of one step, repeatedly; a "
        "life has at most two others"
    ),
    "commit reconciler/jobs/model_registry.py _record_result": (
        "no life has a workspace; after a kill before it, the model is registered again: "
        "tests/integration/jobs/test_trackers.py"
    ),
    "commit reconciler/jobs/trackers.py run_once": (
        "no life has a tracker; a claim expires: tests/integration/jobs/test_trackers.py kills it "
        "and runs two replicas"
    ),
    "commit reconciler/jobs/trackers.py _update_run": (
        "no life has a tracker; after a kill before it, the service asks the tracker for the run"
    ),
    "commit reconciler/jobs/launch.py _return_to_spot": (
        "it needs an attempt on demand and Spot available for long: "
        "tests/integration/money/test_deadlines.py; it writes a request like enforce_deadline"
    ),
    "commit reconciler/jobs/jobs.py _pause_job": (
        "it needs three starts of half an hour, longer than a life; one guarded write like "
        "_fail_job: tests/integration/jobs/test_job_troubles.py"
    ),
    "commit api/deps.py get_connection": (
        "only API keys are written there, and a life has one already: "
        "tests/integration/api/projects/test_keys.py; a key whose response was lost grants "
        "nobody anything"
    ),
    "commit operations/files/files.py record_progress": (
        "it writes the progress of a long upload, and a life's upload takes no time; a lost "
        "write affects only what is shown: tests/integration/sweeps/test_upload_sweep.py"
    ),
    "commit reconciler/attempts/attempts.py _intend_creation": (
        "no life's creation waits for a token; after a kill it is repeated and only the "
        "provisioning timeout begins later: tests/integration/cloud/test_kept_deferrals.py"
    ),
    "commit reconciler/attempts/attempts.py _refill": (
        "no life's cloud refuses a refill at once; it reports the first refusal: "
        "tests/integration/attempts/test_elastic_jobs.py"
    ),
    "commit api/nodes.py _raise_directive_number": (
        "only a restored database has forgotten directives: "
        "tests/integration/attempts/test_restored_database.py; it is idempotent"
    ),
    "commit operations/jobs/preflights.py _report_progress": (
        "it writes the progress of a long check, and a life's check takes no time; without it "
        "another replica starts again"
    ),
    "commit reconciler/jobs/preparation.py _report_progress": (
        "the same for a job: a life's checks are done at the first look"
    ),
    "commit operations/money/price_memory.py remove_doubt": "see save_doubt, below",
    "commit operations/money/price_memory.py save_doubt": (
        "a life's prices come from a table without doubts: "
        "tests/contract/pricing/test_price_memory.py"
    ),
    "delete operations/models/model_deletion.py delete": "see its commit, below",
    "write operations/storage/checkpoint_deletion.py _remove_from_head": "see its commit, below",
    "delete operations/storage/checkpoint_deletion.py _delete_folder": "see its commit, below",
    "commit operations/storage/checkpoint_deletion.py delete": (
        "no life deletes a checkpoint by name; after a kill it is repeated: "
        "tests/integration/api/models/test_checkpoint_models.py"
    ),
    "commit operations/models/model_deletion.py delete": (
        "no life deletes its model; it is idempotent: tests/integration/api/models/test_lineage.py"
    ),
    "commit api/planning/plans.py create": (
        "a plan whose response was lost expires after a day, and no job depends on it: "
        "tests/integration/api/views/test_plans.py"
    ),
    "commit operations/files/files.py expire": (
        "no life's file expires; it hides a file like delete: "
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
            "a life uploads each file in one request: "
            "tests/integration/api/files/test_uploads_in_parts.py and test_upload_completion.py "
            "kill it around the commit and leave the rest to the sweep"
        ),
    ),
    "commit reconciler/sweeps/untracked_resources.py run_once": (
        "no life has one; after a kill before it, the next sweep reports it: "
        "tests/integration/sweeps/test_unknown_containers.py"
    ),
    "commit reconciler/sweeps/containers.py run_once": (
        "the same for containers without a job: tests/integration/sweeps/test_unknown_containers.py"
    ),
    "commit reconciler/sweeps/pruning.py run_once": (
        "it deletes Azure's data older than a year, and a life has none: "
        "tests/integration/sweeps/test_pruning.py; it is idempotent"
    ),
}
REACHED = Path(__file__).parent / "reached.txt"


def all_places() -> set[str]:
    """Return every place with an effect, as "create reconciler/attempts/attempts.py _create".

    This includes transactions that only read, because only a run shows which ones write. It
    leaves out the EXCUSED.
    """
    root = Path(service.__file__).parent
    code_places: set[str] = set()
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            code_places.update(_of(ast.parse(file.read_text()), file.relative_to(root).as_posix()))
    return code_places - EXCUSED.keys()


def reached() -> dict[str, str]:
    """Return the first play that reaches each place, as recorded."""
    lines = REACHED.read_text().splitlines()
    return {place: play for place, _, play in (line.partition(": ") for line in lines)}


def record(by_play: Mapping[str, set[str]]) -> None:
    """Record the places that each play reaches; ``by_play`` is in the order of the plays."""
    first: dict[str, str] = {}
    for play, places in by_play.items():
        for place in places:
            first.setdefault(place, play)
    REACHED.write_text("".join(f"{place}: {play}\n" for place, play in sorted(first.items())))


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
