"""Chat templates with the constructs of published models' templates, in words of our own."""

from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = sorted(path.stem for path in HERE.glob("*.jinja"))


def template(family: str) -> str:
    """Return the Jinja source of a model family's chat template."""
    return (HERE / f"{family}.jinja").read_text()
