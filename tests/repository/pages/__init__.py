"""Generated reference pages; `python -m tests.repository.pages` writes them.

Each module has `PAGE`, a path under `docs/`, and `page()`, its text.
`tests/repository/documents/test_pages.py` fails when a committed page differs.
"""
