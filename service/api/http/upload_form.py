"""Read multipart/form-data with one file as a stream: it fills neither memory nor disk.

Everything but the file's content is limited in size (headers by the parser: eight a part, of 4 KiB
each).
"""

from collections.abc import AsyncIterator, Sequence
from email.message import Message
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.domain.errors import InvalidRequest, MissingParameter, UnknownParameter
from service.domain.storage import file_expiry
from service.domain.storage.file_expiry import ANCHOR_FIELD, SECONDS_FIELD

FILE, PURPOSE = "file", "purpose"
FIELDS = (PURPOSE, ANCHOR_FIELD, SECONDS_FIELD)
_MAX_FIELD_BYTES = 4096
_MAX_NAME_LENGTH = 255  # of the file
_ENCODINGS = (b"base64", b"quoted-printable")  # forbidden by RFC 7578
_MAX_END_BYTES = 64 * 1024  # after the last boundary


class UploadForm:
    """A form that is being read. Fields may come before the file or after it."""

    def __init__(
        self, request: Request, *, file: str = FILE, fields: Sequence[str] = FIELDS
    ) -> None:
        self._file, self._fields = file, fields
        self._required_fields = " and ".join(f"`{name}`" for name in (*fields[:1], file))
        kind, options = parse_options_header(request.headers.get("content-type"))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise InvalidRequest(
                f"Send multipart/form-data with {self._required_fields}.", param=file
            )
        self.filename = "upload"
        self.expected_bytes = _length(request)
        self._values: dict[str, str] = {}
        self._stream = request.stream()
        self._pieces: list[bytes] = []  # of the file, parsed but not handed on yet
        self._name: str | None = None  # of the part under way
        self._value = bytearray()
        self._header_name, self._header_value = bytearray(), bytearray()
        self._end_bytes = 0
        self._has_file = self._is_complete = False
        self._parser = self._make_parser(options[b"boundary"])

    @property
    def purpose(self) -> str | None:
        """The purpose, or None if the form has not named it yet."""
        return self._values.get(PURPOSE)

    def expires_after(self) -> int | None:
        """Return the file's lifetime in seconds (known at the form's end), or refuse it."""
        return file_expiry.parse_form(
            self._values.get(ANCHOR_FIELD), self._values.get(SECONDS_FIELD)
        )

    async def find_file(self) -> None:
        """Read up to the file's first byte."""
        while not self._has_file:
            if not await self._read_on():
                raise MissingParameter(
                    f"{self._file}: missing. Send {self._required_fields}.",
                    param=self._file,
                )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the file's bytes and read the rest of the form; an incomplete form is refused.

        Raises ClientDisconnect when the connection is lost.
        """
        has_more = True
        while has_more:
            for piece in self._pieces:
                yield piece
            self._pieces.clear()
            has_more = await self._read_on()
        if not self._is_complete:
            raise InvalidRequest("The form ends before its last boundary.", param=self._file)

    async def _read_on(self) -> bool:
        """Parse the next piece of the body; return False at its end."""
        chunk = await anext(self._stream, b"")
        if self._is_complete:
            self._end_bytes += len(chunk)
            if self._end_bytes > _MAX_END_BYTES:
                raise InvalidRequest("The form goes on after its last boundary.", param=self._file)
            return bool(chunk)
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise InvalidRequest(f"The form cannot be read: {error}", param=self._file) from None
        return bool(chunk)

    def _make_parser(self, boundary: bytes) -> MultipartParser:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_header_name,
                "on_header_value": self._add_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )

    def _begin_part(self) -> None:
        self._name = None
        self._value.clear()

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        name, value = self._header_name.lower(), bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()
        if name == b"content-disposition":
            self._begin_field(value)
        elif name == b"content-transfer-encoding" and value.strip().lower() in _ENCODINGS:
            raise InvalidRequest(
                f"The form sends a part as {value.strip().decode()}. Send the bytes as they are.",
                param=self._file,
            )

    def _begin_field(self, disposition: bytes) -> None:
        _, options = parse_options_header(disposition)
        name = options.get(b"name", b"").decode(errors="replace")
        if self._name is not None:
            raise InvalidRequest("A part of the form has two names.", param=name or None)
        if name not in (self._file, *self._fields):
            raise UnknownParameter(
                f"{name!a:.60}: not supported. Send {self._required_fields} only.",
                param=name[:60] or None,
            )
        if name in self._values:
            raise InvalidRequest(f"{name}: send it once in a request.", param=name)
        self._name = name
        if name == self._file:
            plain = options.get(b"filename", b"").decode(errors="replace")
            plain = plain.replace("%22", '"')  # as browsers write it
            self._begin_file(_extended_filename(disposition) or plain)

    def _begin_file(self, filename: str) -> None:
        if self._has_file:
            raise InvalidRequest(f"{self._file}: send one file in a request.", param=self._file)
        if any(c < " " or c == "\x7f" for c in filename):
            raise InvalidRequest(
                f"{self._file}: its name holds a control character.", param=self._file
            )
        if len(filename) > _MAX_NAME_LENGTH:
            raise InvalidRequest(
                f"{self._file}: its name is longer than {_MAX_NAME_LENGTH} characters. Shorten it.",
                param=self._file,
            )
        self.filename = filename or self.filename
        self._has_file = True

    def _end_headers(self) -> None:
        if self._name is None:
            raise InvalidRequest(
                f"A part of the form has no name. Send {self._required_fields}.", param=self._file
            )

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self._file:
            self._pieces.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > _MAX_FIELD_BYTES:
            raise InvalidRequest(f"{self._name}: too long.", param=self._name)

    def _end_part(self) -> None:
        if self._name is not None and self._name != self._file:
            self._values[self._name] = self._value.decode(errors="replace")
            if ANCHOR_FIELD in self._values and SECONDS_FIELD in self._values:
                self.expires_after()  # before the file comes

    def _end(self) -> None:
        self._is_complete = True


def _extended_filename(disposition: bytes) -> str:
    """Return the value of ``filename*`` (RFC 5987), "" where there is none that can be read.

    RFC 7578 forbids it in forms, but requests, .NET and Java send it. It takes precedence over
    ``filename`` (RFC 6266).
    """
    message = Message()
    message["content-disposition"] = disposition.decode("latin-1")
    params: list[tuple[str, Any]] = message.get_params([], header="content-disposition")
    for name, value in params:
        if name.lower() == "filename" and isinstance(value, tuple):
            charset, _, encoded = value
            try:
                return str(encoded.encode("latin-1"), charset or "ascii")
            except (UnicodeError, LookupError):
                return ""
    return ""


def _length(request: Request) -> int | None:
    """Return the length of the whole body; None when it comes in chunks."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isdecimal() and len(header) < 19 else None
