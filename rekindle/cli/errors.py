"""What a command tells the shell, and what it tells a person when it cannot go on."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. Documented in `rekindle --help`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    NOT_FOUND = 5
    INTERRUPTED = 130  # as a shell counts SIGINT
    NO_READER = 141  # as a shell counts SIGPIPE


class Trouble(Exception):
    """What is wrong, what to do next, and the exit code that goes with it."""

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
        """The same for a program."""
        return {
            "error": {
                "code": self.code,
                "param": self.param or None,
                "message": self.message,
                "next": self.advice or None,
                "exit_code": int(self.exit_code),
            }
        }


class Unreachable(Trouble):
    """The service does not answer, or says that it cannot just now: later it may."""

    def __init__(self, message: str, advice: str = "", *, code: str = "") -> None:
        super().__init__(message, advice, exit_code=ExitCode.UNREACHABLE, code=code)
