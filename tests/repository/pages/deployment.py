"""docs/deploy.md, a copy of `infra/README.md` for the site."""

from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "deploy.md"
SOURCE = ROOT / "infra" / "README.md"
_NOTE = "Generated from `infra/README.md` by `make docs`; do not edit.\n"


def page() -> str:
    """Return the whole page, with links that work in `docs`."""
    title, first, body = SOURCE.read_text().split("\n\n", 2)
    return f"{title}\n\n{first}\n\n{_NOTE}\n{body}".replace("](../docs/", "](")
