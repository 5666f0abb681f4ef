"""HTTP framing: requests are delimited strictly, before a parser sees them."""

from __future__ import annotations

import re
from enum import Enum, auto

MOST_CHUNKS = 4096
"""Maximum number of chunks of a body: many tiny chunks would cost much time."""
LONGEST_HEAD = 64 * 1024

LENGTH = re.compile(rb"[0-9]{1,18}")
# The target is a path: addresses of other servers, fragments and further spaces are not taken.
REQUEST_LINE = re.compile(rb"(?!CONNECT )[A-Z-]{1,20} /[!\"$-~]* HTTP/1\.[01]")
CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
BEGUN_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{0,8}\r?")
LONGEST_CHUNK_SIZE = 10
# Requests to switch the protocol are answered as if they did not ask for it. An invalid value
# stays, so that the parser refuses it.
UPGRADE = re.compile(rb"\nupgrade:[\t -~\x80-\xff]*\r", re.IGNORECASE)


class FramingError(Exception):
    """A request that another parser, such as a proxy's, could delimit differently."""


class Phase(Enum):
    """The part of a request that is expected next."""

    HEAD = auto()
    BODY = auto()
    CHUNKS = auto()
    DONE = auto()


class Framing:
    """Cuts the bytes of a connection into pieces of one request at a time.

    What follows a request waits until `start_next`."""

    def __init__(self) -> None:
        self._phase = Phase.HEAD
        self._buffer = b""
        self._left = 0
        self._chunks = 0

    @property
    def is_idle(self) -> bool:
        """Whether the head of the next request has not arrived yet."""
        return self._phase is Phase.HEAD

    @property
    def is_done(self) -> bool:
        """Whether the whole request has arrived."""
        return self._phase is Phase.DONE

    @property
    def is_in_body(self) -> bool:
        return self._phase in (Phase.BODY, Phase.CHUNKS)

    @property
    def has_more(self) -> bool:
        """Whether there are bytes that no piece has contained yet."""
        return bool(self._buffer)

    def add(self, data: bytes) -> None:
        self._buffer += data

    def next_piece(self) -> bytes:
        """Return bytes to parse; none if more has to arrive first. Raises FramingError."""
        if not self._buffer:
            return b""
        match self._phase:
            case Phase.HEAD:
                return self._head()
            case Phase.BODY:
                return self._body()
            case Phase.CHUNKS:
                return self._chunk()
            case Phase.DONE:
                return b""

    def start_next(self) -> None:
        """Expect the next request."""
        self._phase = Phase.HEAD

    def _take(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _head(self) -> bytes:
        end = self._buffer.find(b"\r\n\r\n")
        if (len(self._buffer) if end < 0 else end) > LONGEST_HEAD:
            raise FramingError(f"the head of a request has at most {LONGEST_HEAD // 1024} KiB")
        if end < 0:
            _check_lines(self._buffer)
            return b""
        head = self._take(end + 4)
        _check_lines(head)
        self._expect_body(head)
        return UPGRADE.sub(b"", head)

    def _expect_body(self, head: bytes) -> None:
        line, _, headers = head.partition(b"\r")
        if not REQUEST_LINE.fullmatch(line):
            raise FramingError("a request begins with its method, its path and HTTP/1.1")
        is_old, headers = line.endswith(b"1.0"), headers.lower()
        hosts, codings = _values(headers, b"host"), _values(headers, b"transfer-encoding")
        if len(hosts) > 1 or not (hosts or is_old):
            raise FramingError("a request names one host")
        lengths = _values(headers, b"content-length")
        if len(lengths) > 1 or not all(map(LENGTH.fullmatch, lengths)):
            raise FramingError("content-length must be one number")
        if codings:
            self._expect_chunks(codings, has_length=bool(lengths), is_old=is_old)
        else:
            self._left = int(lengths[0]) if lengths else 0
            self._phase = Phase.BODY if self._left else Phase.DONE

    def _expect_chunks(self, codings: list[bytes], *, has_length: bool, is_old: bool) -> None:
        if has_length:
            raise FramingError("a body has either a length or comes in chunks")
        if is_old:
            raise FramingError("chunks need HTTP/1.1")
        if codings != [b"chunked"]:
            raise FramingError("the only transfer-encoding is chunked")
        self._phase, self._left, self._chunks = Phase.CHUNKS, 0, 0

    def _body(self) -> bytes:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._phase = Phase.DONE
        return piece

    def _chunk(self) -> bytes:
        """Return the next part of a chunk: its size, or bytes of it with the end of its line."""
        if self._left:
            piece = self._take(self._left)
            self._left -= len(piece)
            return piece
        size = CHUNK_SIZE.match(self._buffer)
        if size is None:
            if not BEGUN_CHUNK_SIZE.fullmatch(self._buffer, 0, LONGEST_CHUNK_SIZE):
                raise FramingError("a chunk begins with its size alone; extensions are not taken")
            return b""
        self._left = int(size[1], 16) + 2
        return self._last_chunk(size) if self._left == 2 else self._begin_chunk(size)

    def _begin_chunk(self, size: re.Match[bytes]) -> bytes:
        self._chunks += 1
        if self._chunks > MOST_CHUNKS:
            raise FramingError(f"a body has at most {MOST_CHUNKS} chunks")
        return self._take(size.end())

    def _last_chunk(self, size: re.Match[bytes]) -> bytes:
        self._left = 0
        end = self._buffer[size.end() : size.end() + 2]
        if not b"\r\n".startswith(end):
            raise FramingError("a body ends with its last chunk; trailers are not taken")
        if len(end) < 2:
            return b""
        self._phase = Phase.DONE
        return self._take(size.end() + 2)


def _check_lines(head: bytes) -> None:
    # Counting is several times as quick as a pattern. The last CR may still wait for its LF.
    breaks = head.count(b"\r\n")
    if head.count(b"\n") != breaks or head.count(b"\r") - head.endswith(b"\r") != breaks:
        raise FramingError("lines of a request end with CR LF, and neither is used alone")
    if b"\n " in head or b"\n\t" in head:
        raise FramingError("a header may not be continued on the next line")


def _values(headers: bytes, name: bytes) -> list[bytes]:
    """Return the values of a header; names and values are in lower case."""
    _, *rest = headers.split(b"\n%b:" % name)
    return [value.partition(b"\r")[0].strip(b" \t") for value in rest]
