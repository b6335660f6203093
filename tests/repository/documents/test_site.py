"""Documentation site: every page is in its navigation, and links stay inside docs."""

import re
from pathlib import Path

from tests.repository.sources import ROOT, files, links, text

DOCS = Path("docs")
PAGES = [file for file in files() if file.parent == DOCS and file.suffix == ".md"]
ALL = [file for file in files() if file.suffix == ".md" and file.parts[0] == "docs"]


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r": ([\w-]+\.md)$", text(Path("mkdocs.yml")), re.MULTILINE)

    assert sorted(navigation) == sorted(page.name for page in PAGES)


def test_a_page_begins_with_its_readers() -> None:
    for page in PAGES:
        title, first = text(page).split("\n\n")[:2]

        assert (title[:2], first[:4]) == ("# ", "For "), page


def test_no_link_leads_out_of_docs() -> None:
    targets = [(ROOT / page.parent / link).resolve() for page in ALL for link in links(page)]

    assert [str(t) for t in targets if not t.is_relative_to(ROOT / DOCS)] == []
