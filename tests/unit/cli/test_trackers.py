"""Measurements for other programs: what a user is told whose program is not there."""

import pytest

from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.jobs.trackers import _import_package


def test_a_package_that_is_missing_is_named_with_what_needs_none() -> None:
    with pytest.raises(CliError) as told:
        _import_package("no_such_tracker", "--mlflow")

    assert "--mlflow needs the package no_such_tracker" in told.value.message
    assert told.value.exit_code == ExitCode.USAGE
    assert "--tensorboard" in told.value.advice
