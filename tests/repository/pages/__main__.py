"""Write every generated page."""

from tests.repository.pages.everything import PAGES

for one in PAGES:
    one.PAGE.write_text(one.page())
