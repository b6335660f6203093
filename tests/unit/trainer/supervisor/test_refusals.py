"""What Blob's refusals mean to a supervisor."""

import pytest

from trainer.supervisor.blob.errors import PreconditionFailedError, error_for_status


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_a_blob_in_the_archive_is_not_one_that_was_written_again(code: str) -> None:
    archived = error_for_status("https://account/job/checkpoints/9/file?sig=1", 409, code)
    written = error_for_status(
        "https://account/job/checkpoints/9/file?sig=1", 409, "BlobAlreadyExists"
    )

    assert isinstance(written, PreconditionFailedError)
    assert not isinstance(archived, PreconditionFailedError)
    assert "archive" in str(archived)
