"""Every error a caller may meet, with the answer that HTTP gives it.

Each class has its code; docs/errors.md lists them. A message says what is wrong and what to do
next. ``retry`` becomes x-should-retry: OpenAI's clients retry every 409 unless it is false.
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

    def as_envelope(self) -> dict[str, Any]:
        """Return OpenAI's error envelope."""
        members = {"message": self.message, "type": self.type, "param": self.param}
        return {"error": members | {"code": self.code} | self.details}


class InvalidRequest(ServiceError):
    """The request can never succeed as it is; ``code`` says in which way."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"

    def __init__(self, message: str, *, code: str = "", param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code or type(self).code


class MissingParameter(InvalidRequest):
    """A required member or parameter is missing."""

    code = "missing_required_parameter"


class UnknownParameter(InvalidRequest):
    """A member or parameter that this URL does not have."""

    code = "unknown_parameter"


class UnknownCursor(InvalidRequest):
    """`after` names no item of the list."""

    code = "unknown_cursor"


class Unsupported(InvalidRequest):
    """The deployment lacks what the request needs."""

    code = "unsupported"


class UnsupportedModel(InvalidRequest):
    """No job can start from this model."""

    code = "unsupported_model"


class WrongFileFormat(InvalidRequest):
    """The training method does not learn from rows of this format."""

    code = "wrong_file_format"


class ChecksumMismatch(InvalidRequest):
    """The bytes of an upload differ from those that were sent."""

    code = "checksum_mismatch"


class BudgetTooSmall(InvalidRequest):
    """No option of the plan is likely to keep the budget."""

    code = "budget_too_small"


class InvalidFile(InvalidRequest):
    """An upload that cannot be trained on: the first errors, each with its line, and totals."""

    code = "invalid_file_format"

    def __init__(
        self, message: str, *, errors: list[dict[str, Any]], counts: dict[str, int]
    ) -> None:
        super().__init__(message, param="file")
        self.details = {"errors": errors, "counts": counts}


class MissingFile(InvalidRequest):
    """The request names a file that does not exist."""

    code = "file_not_found"


class FileJustDeleted(MissingFile):
    """A file that was deleted while the request was handled."""

    def __init__(self, file_id: str, param: str) -> None:
        message = f"{param}: {file_id} was deleted a moment ago. Upload it again."
        super().__init__(message, param=param)


class InvalidApiKey(ServiceError):
    """No API key, or one that this service does not know."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class ExpiredApiKey(InvalidApiKey):
    """The API key has expired."""

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
    """The key's scope does not include what the request needs."""

    code = "insufficient_scope"


class MismatchedProject(PermissionDenied):
    """The key belongs to another project than the request names."""

    code = "mismatched_project"


class QuotaExceeded(PermissionDenied):
    """The project has reached a quota: delete something, or ask the operator for more."""

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


class MethodNotAllowed(ServiceError):
    """The URL does not take this method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class RequestTimedOut(ServiceError):
    """The body of a request stalled."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class Conflict(ServiceError):
    """The state of the resource does not allow this. Retrying does not help."""

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
    """The data are in the archive tier or being rehydrated: rehydrate them first, or wait."""

    code = "archived"


class ContentChanged(Conflict):
    """The content in Blob differs from what was committed or uploaded."""

    code = "content_changed"


class IdempotencyMismatch(Conflict):
    """The same idempotency key came with another request."""

    code = "idempotency_key_reused"


class GenerationIsStale(Conflict):
    """A newer generation exists: the node stops without committing."""

    code = "stale_generation"


class StaleEpoch(Conflict):
    """The VM's supervisor has registered again since; only the newest one counts."""

    code = "stale_epoch"


class Gone(ServiceError):
    """The resource is gone permanently; a node stops."""

    status = 410
    type = "invalid_request_error"
    code = "gone"
    retry = False


class PayloadTooLarge(ServiceError):
    """The request has more bytes than allowed."""

    status = 413
    type = "invalid_request_error"
    code = "payload_too_large"


class UnsupportedMediaType(ServiceError):
    """The body has a content type that the route does not read."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class NotSeenYet(ServiceError):
    """The cloud does not list this VM yet; retry in a moment."""

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
    """A dependency of the service does not answer now."""

    status = 503
    code = "service_unavailable"


class LeaseLost(ServiceError):
    """Another replica holds the lease now; nothing is written."""

    code = "lease_lost"


class NothingTrained(ServiceError):
    """A job that is reported as done without a trained token, so its model is no result."""

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
