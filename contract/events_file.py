"""Write TensorBoard event files with scalars, without TensorBoard or protobuf.

A file is records: length (u64), masked CRC-32C of it, the data, masked CRC-32C of that, all
little-endian (tensorflow/core/lib/io/record_writer.h). The data is an Event
(tensorflow/core/util/event.proto): 1 wall_time, 2 step, 3 file_version, 5 summary; of the summary
each value (1) has a tag (1) and a simple_value (2).
"""

import struct
from collections.abc import Mapping

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed
_MASK = 0xA282EAD8
_U32 = 0xFFFFFFFF
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # protobuf's wire types


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL * (crc & 1))
        table.append(crc)
    return table


_TABLE = _table()


def beginning(wall_time: float) -> bytes:
    """Return the first record of a file."""
    return _record(_double(1, wall_time) + _bytes(3, b"brain.Event:2"))


def event(wall_time: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return the record of one step's values by tag; ``wall_time`` is in Unix seconds."""
    summary = b"".join(
        _bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items()
    )
    return _record(_double(1, wall_time) + _integer(2, step) + _bytes(5, summary))


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of RFC 3720."""
    crc = _U32
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _U32


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & _U32
    return struct.pack("<I", (rotated + _MASK) & _U32)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _integer(field: int, number: int) -> bytes:
    return _key(field, _VARINT) + _varint(number)


def _double(field: int, number: float) -> bytes:
    return _key(field, _DOUBLE) + struct.pack("<d", number)


def _float(field: int, number: float) -> bytes:
    return _key(field, _FLOAT) + struct.pack("<f", number)


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data
