"""What Blob's refusals mean to a supervisor."""

import pytest

from trainer.supervisor.blob.errors import PreconditionFailed, refusal


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_a_blob_in_the_archive_is_not_one_that_was_written_again(code: str) -> None:
    archived = refusal("https://account/job/checkpoints/9/file?sig=1", 409, code)
    written = refusal("https://account/job/checkpoints/9/file?sig=1", 409, "BlobAlreadyExists")

    assert isinstance(written, PreconditionFailed)
    assert not isinstance(archived, PreconditionFailed)
    assert "archive" in str(archived)
