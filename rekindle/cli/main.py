"""The `rekindle` command."""


def main() -> None:
    """Run it."""
