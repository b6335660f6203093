"""Forged files: other bytes with the same size and the same CRC-64/NVME.

A CRC is linear over GF(2). So eight bytes elsewhere can compensate any change, which is a system
of 64 linear equations with 64 unknown bits.
"""

from awscrt import checksums

_WORD = 8  # bytes of a CRC


def forged(data: bytes, at: int = 0, block_size: int = 0) -> bytes:
    """Return the data with one flipped bit in byte ``at`` and an unchanged CRC of its block.

    The last eight bytes of the block compensate the change.
    """
    size = block_size or len(data)
    begin = at // size * size
    block = data[begin : begin + size]
    changed = bytearray(block)
    changed[at - begin] ^= 1
    assert at - begin < len(block) - _WORD, "these eight bytes are needed for the CRC"
    changed[-_WORD:] = bytes(_WORD)
    lacking = checksums.crc64nvme(bytes(changed)) ^ checksums.crc64nvme(block)
    changed[-_WORD:] = _making_up(lacking)
    patched = data[:begin] + bytes(changed) + data[begin + size :]
    assert (len(patched), checksums.crc64nvme(patched)) == (len(data), checksums.crc64nvme(data))
    assert patched != data
    return patched


def _making_up(crc: int) -> bytes:
    """Return the eight bytes that change a message's CRC by ``crc`` in place of final zeros."""
    zero = checksums.crc64nvme(bytes(_WORD))
    rows: dict[int, tuple[int, int]] = {}  # by highest bit: change of the CRC, message bits
    for bit in range(64):
        bits = 1 << bit
        change = checksums.crc64nvme(bits.to_bytes(_WORD, "little")) ^ zero
        change, bits = _reduced(change, bits, rows)
        rows[change.bit_length()] = change, bits
    remainder, bits = _reduced(crc, 0, rows)
    assert not remainder, "of eight bytes every CRC can be made"
    return bits.to_bytes(_WORD, "little")


def _reduced(change: int, bits: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while change and (row := rows.get(change.bit_length())):
        change, bits = change ^ row[0], bits ^ row[1]
    return change, bits
