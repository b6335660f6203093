"""A plugin of pytest that keeps the tests that use PostgreSQL; `tests/upgrade.py` copies it."""

import pytest

SCHEMA = "migrated"  # the fixture that makes it: tests/conftest.py


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that ask for the schema, directly or through another fixture."""
    kept = [item for item in items if SCHEMA in getattr(item, "fixturenames", ())]
    chosen = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept
