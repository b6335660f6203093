"""Forged files: other bytes of the same size, whose CRC-64/NVME is that of the true ones.

A CRC is linear. So of any change eight bytes elsewhere make up for it: 64 equations of 64 bits.
"""

from awscrt import checksums

_WORD = 8  # bytes; as many as a CRC has


def forged(data: bytes, at: int = 0, block_size: int = 0) -> bytes:
    """The data with another byte ``at``, and the last eight bytes of its block made to fit."""
    size = block_size or len(data)
    begin = at // size * size
    block = data[begin : begin + size]
    changed = bytearray(block)
    changed[at - begin] ^= 1
    assert at - begin < len(block) - _WORD, "these eight bytes are needed for the CRC"
    changed[-_WORD:] = bytes(_WORD)
    lacking = checksums.crc64nvme(bytes(changed)) ^ checksums.crc64nvme(block)
    changed[-_WORD:] = _making_up(lacking)
    made = data[:begin] + bytes(changed) + data[begin + size :]
    assert (len(made), checksums.crc64nvme(made)) == (len(data), checksums.crc64nvme(data))
    assert made != data
    return made


def _making_up(crc: int) -> bytes:
    """The last eight bytes of a message that change its CRC so, where they were zero."""
    zero = checksums.crc64nvme(bytes(_WORD))
    rows: dict[int, tuple[int, int]] = {}  # by its highest bit: a change of the CRC, its bits
    for bit in range(64):
        bits = 1 << bit
        change = checksums.crc64nvme(bits.to_bytes(_WORD, "little")) ^ zero
        change, bits = _reduced(change, bits, rows)
        rows[change.bit_length()] = change, bits
    left, bits = _reduced(crc, 0, rows)
    assert not left, "of eight bytes every CRC can be made"
    return bits.to_bytes(_WORD, "little")


def _reduced(change: int, bits: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while change and (row := rows.get(change.bit_length())):
        change, bits = change ^ row[0], bits ^ row[1]
    return change, bits
