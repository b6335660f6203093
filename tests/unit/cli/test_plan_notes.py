"""Notes below a plan on the command line."""

from rekindle.cli.submit.submit_command import plan_lines


def test_a_warning_of_the_recipe_is_shown_once() -> None:
    plan = {"warnings": ["mind this"], "recipe": {"warnings": ["mind this"]}}

    assert [piece for piece in plan_lines(plan) if piece == "note: mind this"] == [
        "note: mind this"
    ]
