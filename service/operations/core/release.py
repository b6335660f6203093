"""The release of the running service."""

from importlib.metadata import PackageNotFoundError, version


def release() -> str | None:
    """Return the installed release; None where the sources run without being installed."""
    try:
        return version("rekindle")
    except PackageNotFoundError:
        return None
