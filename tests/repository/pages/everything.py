"""The modules of all generated pages."""

from tests.repository.pages import (
    commands,
    emulator,
    errors,
    events,
    http_api,
    lifecycle,
    metrics,
    settings,
)

PAGES = (commands, emulator, errors, events, http_api, lifecycle, metrics, settings)
