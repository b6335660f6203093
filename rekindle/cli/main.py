"""The `rekindle` command: registers the commands and turns failures into exit codes.

Commands import httpx, asyncio and other large packages when they run, so help appears at once.
"""

import os
import sys
from collections.abc import Callable

import typer

from contract.printable import printable
from rekindle.cli.command import command
from rekindle.cli.diagnostics import audit, doctor
from rekindle.cli.distil import distil_command
from rekindle.cli.errors import ExitCode
from rekindle.cli.files import file_commands, preview
from rekindle.cli.imports import import_command
from rekindle.cli.jobs import job_commands, limits, logs, metrics, pause, report, simulate, watch
from rekindle.cli.local import breaking, stack_commands
from rekindle.cli.models import download, tier
from rekindle.cli.pipelines import pipeline_command
from rekindle.cli.projects import costs, keys, project_commands, traces
from rekindle.cli.submit import plan, presets, submit_command
from rekindle.cli.submit.removed_options import SubmitCommand

_EPILOG = """
JOB is a job id, a unique prefix of one, or `last` for the newest job.

The service and API key come from --url and --key; else from REKINDLE_URL and REKINDLE_API_KEY; \
else from OPENAI_BASE_URL and OPENAI_API_KEY; else from the local stack whose .rekindle folder is \
in this folder or a parent.

Exit codes:
  0  success
  1  the command or the job failed
  2  wrong arguments or request
  3  the service cannot be reached
  4  the API key is missing, invalid or lacks permission
  5  not found
130  interrupted by Ctrl-C
141  the output pipe was closed
"""
_JOBS, _LOCAL, _MORE = "Jobs", "Local stack", "Files, keys, operations"

app = typer.Typer(
    name="rekindle",
    help="Fine-tune language models on Azure Spot GPUs; jobs resume after every eviction.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_files = typer.Typer(help="Upload, list, preview and delete training files.", no_args_is_help=True)
_keys = typer.Typer(help="Create, list and revoke API keys of your project.", no_args_is_help=True)
_traces = typer.Typer(
    help="Export the Spot capacity that your jobs observed.", no_args_is_help=True
)

_COMMANDS: dict[str, Callable[..., int | None]] = {
    "presets": presets.list_presets,
    "pipeline": pipeline_command.run_pipeline,
    "list": job_commands.list_jobs,
    "show": job_commands.show_job,
    "watch": watch.watch_job,
    "logs": logs.show_logs,
    "metrics": metrics.export_metrics,
    "report": report.write_report,
    "events": job_commands.show_events,
    "cost": job_commands.show_cost,
    "cancel": job_commands.cancel_job,
    "pause": pause.pause_jobs,
    "resume": pause.resume_jobs,
    "set": limits.set_limits,
    "simulate": simulate.simulate_job,
    "download": download.download_model,
    "tier": tier.change_tier,
}
app.command("plan", cls=SubmitCommand, rich_help_panel=_JOBS)(command(plan.plan_job))
app.command("submit", cls=SubmitCommand, rich_help_panel=_JOBS)(command(submit_command.submit_job))
for _name, _function in _COMMANDS.items():
    app.command(_name, rich_help_panel=_JOBS)(command(_function))
_files.command("list")(command(file_commands.list_files))
_files.command("show")(command(file_commands.show_file))
_files.command("upload")(command(file_commands.upload_file))
_files.command("preview")(command(preview.preview_file))
_files.command("delete")(command(file_commands.delete_file))
_keys.command("create")(command(keys.create_key))
_keys.command("list")(command(keys.list_keys))
_keys.command("revoke")(command(keys.revoke_key))
_traces.command("export")(command(traces.export_traces))
app.add_typer(_files, name="files", rich_help_panel=_MORE)
app.add_typer(_keys, name="keys", rich_help_panel=_MORE)
app.add_typer(_traces, name="traces", rich_help_panel=_MORE)
app.command("import", rich_help_panel=_MORE)(command(import_command.import_file))
app.command("distil", rich_help_panel=_MORE)(command(distil_command.distil_rows))
app.command("costs", rich_help_panel=_MORE)(command(costs.show_costs))
app.command("audit", rich_help_panel=_MORE)(command(audit.audit_resources))
app.command("projects", rich_help_panel=_MORE)(command(project_commands.list_projects))
app.command("doctor", rich_help_panel=_MORE)(command(doctor.check_installation))
app.command("up", rich_help_panel=_LOCAL)(stack_commands.start_stack)
app.command("evict", rich_help_panel=_LOCAL)(command(stack_commands.evict_machines))
app.command("break", rich_help_panel=_LOCAL)(command(breaking.inject_fault))


def main() -> None:
    """Run the command line; report an unexpected error in one sentence with exit code 1."""
    try:
        app(prog_name="rekindle")
    except Exception as error:
        if os.environ.get("REKINDLE_TRACEBACK"):
            raise
        fault = printable(f"{type(error).__name__}: {error}")
        print(
            f"error: unexpected error: {fault}\n"
            "Run the command again with REKINDLE_TRACEBACK=1 and report the traceback.",
            file=sys.stderr,
        )
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
