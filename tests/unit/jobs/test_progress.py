"""How far a job is, by its reports and by what is committed."""

from service.domain.reporting.progress import with_committed

REPORTED = {"step": 134, "loss": 1.5, "reward": 0.2, "seconds_per_step": 0.5, "valid_loss": 1.4}


def test_the_committed_model_counts_where_the_reports_ended_before_it() -> None:
    shown = with_committed(REPORTED, 256, is_over=True, valid_loss=0.9)

    assert shown["step"] == 256
    assert (shown["loss"], shown["reward"], shown["valid_loss"]) == (None, None, 0.9)
    assert shown["seconds_per_step"] == 0.5


def test_a_job_that_goes_on_keeps_its_figures_until_the_next_report() -> None:
    assert with_committed(REPORTED, 140, is_over=False) == REPORTED | {"step": 140}


def test_reports_of_later_steps_than_the_checkpoint_stay_as_they_are() -> None:
    assert with_committed(REPORTED, 128, is_over=True, valid_loss=0.9) == REPORTED
    assert with_committed({}, 0, is_over=False) == {}
