"""List of the modules of all generated pages."""

from tests.repository.pages import (
    commands,
    decisions,
    deployment,
    emulator,
    errors,
    events,
    http_api,
    lifecycle,
    llms,
    metrics,
    settings,
)

PAGES = (
    commands,
    decisions,
    deployment,
    emulator,
    errors,
    events,
    http_api,
    lifecycle,
    metrics,
    settings,
    llms,  # last, because it quotes the others
)
