"""Detect a full disk, and tell the user what to do about it."""

import errno

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
REMEDY = (
    "the node's disk is full. Use a VM size with a larger local disk, or have fewer and smaller "
    "files on it: a smaller base model, LoRA instead of full fine-tuning"
)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk, or this user's quota, is full."""
    return isinstance(error, OSError) and error.errno in FULL


def error_with_remedy(error: BaseException) -> str:
    """Return the error's text; with a remedy where a larger disk would help."""
    return f"{error}: {REMEDY}" if is_disk_full(error) else str(error)
