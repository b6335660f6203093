"""Rekindle: fine-tuning on Azure Spot GPUs. `Client` and `AsyncClient` are its Python clients."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rekindle.client import AsyncClient as AsyncClient
    from rekindle.client import Client as Client

_CLIENTS = ("AsyncClient", "Client")


def __getattr__(name: str) -> object:
    """Import the clients when they are asked for: the command line starts without openai."""
    if name in _CLIENTS:
        try:
            from rekindle import client  # noqa: PLC0415 - see above
        except ModuleNotFoundError as error:
            if error.name != "openai":
                raise
            raise ModuleNotFoundError(
                f"rekindle.{name} needs OpenAI's client: pip install openai", name="openai"
            ) from None

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
