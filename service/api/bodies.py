"""Bodies that are read whole, up to a limit: a sender never decides how much memory we use."""

from fastapi import Request

from service.domain.errors import PayloadTooLarge


async def read(request: Request, most: int) -> bytes:
    """The whole body, or PayloadTooLarge as soon as it is known to be longer than ``most``."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise PayloadTooLarge(f"The body is longer than {most} bytes. Send less at a time.")
    return bytes(body)
