"""Fetch the end of a machine's serial log from the SAS URL that Azure gives for it."""

import ssl

import httpx

from service.cloud.provider import SERIAL_LOG_BYTES, NoSerialLog

_MAX_BYTES = 16 * 2**20  # bytes that are read of one log, however long it is
_SECONDS = 10.0  # without a byte


async def fetch_end(url: str | None, ca_path: str = "") -> bytes:
    """Return the last SERIAL_LOG_BYTES. Raises NoSerialLog, whose message has no SAS in it.

    Read from its beginning: Blob Storage takes no range that is counted from the end (Microsoft
    Learn, "Specifying the range header for Blob service operations").
    """
    if not url:
        raise NoSerialLog("Azure names no serial log of this machine.")
    verify = ssl.create_default_context(cafile=ca_path) if ca_path else True
    try:
        async with httpx.AsyncClient(verify=verify, timeout=_SECONDS) as client:
            return await _end(client, url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = type(error).__name__  # the text of some has the URL in it
        raise NoSerialLog(f"The serial log cannot be fetched: {reason}.") from None


async def _end(client: httpx.AsyncClient, url: str) -> bytes:
    tail, received = bytearray(), 0
    async with client.stream("GET", url) as answer:
        if answer.status_code != httpx.codes.OK:
            raise NoSerialLog(f"The serial log cannot be fetched: status {answer.status_code}.")
        async for chunk in answer.aiter_bytes():
            tail += chunk
            del tail[:-SERIAL_LOG_BYTES]
            received += len(chunk)
            if received >= _MAX_BYTES:
                break
    return bytes(tail)
