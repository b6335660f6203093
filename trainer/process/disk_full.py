"""A disk that is full: how an error of it is told, so that whoever reads it can do something."""

import errno

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
REMEDY = (
    "the node's disk is full. Use a VM size with a larger local disk, or have fewer and smaller "
    "files on it: a smaller base model, LoRA instead of full fine-tuning"
)


def is_disk_full(error: BaseException) -> bool:
    """True when the disk, or this user's share of it, has no room left."""
    return isinstance(error, OSError) and error.errno in FULL


def error_with_remedy(error: BaseException) -> str:
    """The error in words; where a larger disk would help, it says so."""
    return f"{error}: {REMEDY}" if is_disk_full(error) else str(error)
