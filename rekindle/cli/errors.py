"""Exit codes of the command line, and errors with a message and advice."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; `rekindle --help` documents them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    NOT_FOUND = 5
    INTERRUPTED = 130  # as a shell counts SIGINT
    NO_READER = 141  # as a shell counts SIGPIPE


class CliError(Exception):
    """An error with a message, advice on what to do next, and an exit code."""

    def __init__(
        self,
        message: str,
        advice: str = "",
        *,
        exit_code: ExitCode = ExitCode.FAILED,
        code: str = "",
        param: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.exit_code = exit_code
        self.code = code or exit_code.name.lower()
        self.param = param

    def as_dict(self) -> dict[str, object]:
        """Return the error as JSON output."""
        return {
            "error": {
                "code": self.code,
                "param": self.param or None,
                "message": self.message,
                "next": self.advice or None,
                "exit_code": int(self.exit_code),
            }
        }


class ServiceUnreachable(CliError):
    """The service does not answer, or is unavailable for the moment."""

    def __init__(self, message: str, advice: str = "", *, code: str = "") -> None:
        super().__init__(message, advice, exit_code=ExitCode.UNREACHABLE, code=code)
