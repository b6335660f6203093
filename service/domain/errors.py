"""Every error a caller may meet, with the answer that HTTP gives it.

    ServiceError
    +-- InvalidRequest        400  (a code per instance)
    |   +-- InvalidFile            invalid_file_format
    |   +-- FileJustDeleted        file_not_found
    +-- InvalidApiKey         401  invalid_api_key
    |   +-- ExpiredApiKey          expired_api_key
    +-- InvalidSignIn         401  invalid_sign_in
    +-- PermissionDenied      403  permission_denied
    |   +-- InsufficientScope      insufficient_scope
    |   +-- MismatchedProject      mismatched_project
    |   +-- QuotaExceeded          quota_exceeded
    +-- NotFound              404
    |   +-- UnknownUrl             unknown_url
    |   +-- JobNotFound            job_not_found
    |   +-- FileNotFound           file_not_found
    |   +-- UploadNotFound         upload_not_found
    |   +-- ModelNotFound          model_not_found
    |   +-- PlanNotFound           plan_not_found
    |   +-- AttemptNotFound        attempt_not_found
    |   +-- CheckpointNotFound     checkpoint_not_found
    |   +-- NodeNotFound           node_not_found
    |   +-- ProjectNotFound        project_not_found
    |   +-- KeyNotFound            api_key_not_found
    +-- RequestTimedOut       408  request_timeout
    +-- Conflict              409
    |   +-- InvalidState           invalid_job_state
    |   +-- FileInUse              file_in_use
    |   +-- UploadIsOver           invalid_upload_state
    |   +-- Archived               archived
    |   +-- ContentChanged         content_changed
    |   +-- IdempotencyMismatch    idempotency_key_reused
    |   +-- GenerationIsStale      stale_generation
    |   +-- StaleEpoch             stale_epoch
    +-- Gone                  410  gone
    +-- PayloadTooLarge       413  payload_too_large
    +-- UnsupportedMediaType  415  unsupported_media_type
    +-- NotSeenYet            425  not_seen_yet
    +-- RateLimited           429  rate_limit_exceeded
    +-- HeadTooLarge          431  headers_too_large
    +-- ServiceUnavailable    503  service_unavailable
    +-- LeaseLost             500  never leaves the reconciler
    +-- NothingTrained        500  never leaves the reconciler
    +-- IllegalMove           500  a bug: the life cycle has no such move

A message says what is wrong and what to do next. ``retry`` becomes the header
x-should-retry: OpenAI's clients retry every 409 unless it says false.
"""

from typing import Any, ClassVar


class ServiceError(Exception):
    """The base: ``status``, ``type``, ``code`` and ``param`` make OpenAI's error envelope."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str = "internal_error"
    retry: ClassVar[bool | None] = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.details: dict[str, Any] = {}  # more members of the envelope
        self.retry_after: int | None = None  # seconds


class InvalidRequest(ServiceError):
    """The request can never succeed as it is; ``code`` says in which way."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"

    def __init__(
        self, message: str, *, code: str = "invalid_value", param: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.code = code


class InvalidFile(InvalidRequest):
    """An upload that cannot be trained on: the first errors, each with its line, and totals."""

    code = "invalid_file_format"

    def __init__(
        self, message: str, *, errors: list[dict[str, Any]], counts: dict[str, int]
    ) -> None:
        super().__init__(message, code=self.code, param="file")
        self.details = {"errors": errors, "counts": counts}


class FileJustDeleted(InvalidRequest):
    """A file that was there when the request was looked at, and not when it was written."""

    code = "file_not_found"

    def __init__(self, file_id: str, param: str) -> None:
        message = f"{param}: {file_id} was deleted a moment ago. Upload it again."
        super().__init__(message, code=self.code, param=param)


class InvalidApiKey(ServiceError):
    """No API key, or one that is not ours."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class ExpiredApiKey(InvalidApiKey):
    """The key's time is over."""

    code = "expired_api_key"


class InvalidSignIn(ServiceError):
    """A sign-in token that is unknown, used or expired."""

    status = 401
    type = "authentication_error"
    code = "invalid_sign_in"


class PermissionDenied(ServiceError):
    """The key is known, but may not do this."""

    status = 403
    type = "permission_error"
    code = "permission_denied"


class InsufficientScope(PermissionDenied):
    """The key is for less than the request needs."""

    code = "insufficient_scope"


class MismatchedProject(PermissionDenied):
    """The key is of another project than the request names."""

    code = "mismatched_project"


class QuotaExceeded(PermissionDenied):
    """The project has as much as it may have: something must go first, or the operator helps."""

    code = "quota_exceeded"


class NotFound(ServiceError):
    """No such thing, or none that this key may see."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class UnknownUrl(NotFound):
    """No route of this path."""

    code = "unknown_url"


class JobNotFound(NotFound):
    """No job of this id."""

    code = "job_not_found"


class FileNotFound(NotFound):
    """No file of this id."""

    code = "file_not_found"


class UploadNotFound(NotFound):
    """No upload in parts of this id."""

    code = "upload_not_found"


class ModelNotFound(NotFound):
    """No model of this name."""

    code = "model_not_found"


class PlanNotFound(NotFound):
    """No plan of this id."""

    code = "plan_not_found"


class AttemptNotFound(NotFound):
    """No attempt of this id."""

    code = "attempt_not_found"


class CheckpointNotFound(NotFound):
    """No committed checkpoint of this id."""

    code = "checkpoint_not_found"


class NodeNotFound(NotFound):
    """No node of this id."""

    code = "node_not_found"


class ProjectNotFound(NotFound):
    """No project of this name."""

    code = "project_not_found"


class KeyNotFound(NotFound):
    """No API key of this id."""

    code = "api_key_not_found"


class RequestTimedOut(ServiceError):
    """The body of a request stopped coming."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class Conflict(ServiceError):
    """The thing exists, but not in a shape that allows this. Trying again does not help."""

    status = 409
    type = "conflict_error"
    code = "conflict"
    retry = False


class InvalidState(Conflict):
    """The job's state does not allow this."""

    code = "invalid_job_state"


class FileInUse(Conflict):
    """A job that is not over needs the file."""

    code = "file_in_use"


class UploadIsOver(Conflict):
    """The upload is completed, cancelled or expired, or is being completed."""

    code = "invalid_upload_state"


class Archived(Conflict):
    """It is in the archive tier, or on its way back: bring it back first, or wait."""

    code = "archived"


class ContentChanged(Conflict):
    """What lies in Blob is not what was committed, or uploaded."""

    code = "content_changed"


class IdempotencyMismatch(Conflict):
    """The same idempotency key came with another request."""

    code = "idempotency_key_reused"


class GenerationIsStale(Conflict):
    """A newer generation exists: the node stops without committing."""

    code = "stale_generation"


class StaleEpoch(Conflict):
    """The VM's supervisor has registered again since; only the newest one is heard."""

    code = "stale_epoch"


class Gone(ServiceError):
    """It was there and will not come back: a node leaves."""

    status = 410
    type = "invalid_request_error"
    code = "gone"
    retry = False


class PayloadTooLarge(ServiceError):
    """More bytes than are taken in one request."""

    status = 413
    type = "invalid_request_error"
    code = "payload_too_large"


class UnsupportedMediaType(ServiceError):
    """A body of another kind than the route reads."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class NotSeenYet(ServiceError):
    """The cloud's instance list does not name this VM yet; it will in a moment."""

    status = 425
    type = "invalid_request_error"
    code = "not_seen_yet"
    retry = True


class RateLimited(ServiceError):
    """Too many requests of this key in a minute, or of this project at once."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    retry = True

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HeadTooLarge(ServiceError):
    """Too many headers, or too long ones."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class ServiceUnavailable(ServiceError):
    """Something that we need does not answer now."""

    status = 503
    code = "service_unavailable"


class LeaseLost(ServiceError):
    """Another replica has the claim now: whatever was decided here is dropped."""

    code = "lease_lost"


class NothingTrained(ServiceError):
    """A job whose nodes say that it is done, and that no token was trained: its model is no result.

    The trainer fails such a run itself; one that is not ours may not.
    """

    code = "trainer_error"

    def __init__(self) -> None:
        super().__init__(
            "Training ended without one trained token (trained_tokens is 0), so the model is still "
            "the base model. Check that answers fit into training.max_seq_len and have a weight."
        )


class IllegalMove(ServiceError):
    """The life cycle has no such move. A bug in the caller."""

    code = "illegal_move"

    def __init__(self, noun: str, was: str, to: str) -> None:
        super().__init__(f"{noun} cannot go from {was} to {to}; see domain/states.py")
        self.noun, self.was, self.to = noun, was, to
