"""HTTP framing: h11 without the leniencies that allow request smuggling."""

from __future__ import annotations

import re

import h11

MOST_CHUNKS = 4096
"""Maximum number of chunks of a body: many tiny chunks would cost much time."""
LONGEST_CHUNK_LINE = 20

LINE_BREAK = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
FOLDED = re.compile(rb"\n[ \t]")
LENGTH = re.compile(rb"\ncontent-length:([^\r\n]*)\r", re.IGNORECASE)
CHUNK_BYTES = b"0123456789abcdefABCDEF\r\n"
# The last chunk is matched with its end, any other with its first byte,
# so that h11 always gets whole lines.
CHUNK = re.compile(rb"0{1,8}\r\n\r\n|(?!0{1,8}\r\n)[0-9a-fA-F]{1,8}\r\n.", re.DOTALL)
NEXT_CHUNK = re.compile(rb"\r\n(?:%b)" % CHUNK.pattern, re.DOTALL)


class Framing(h11.Connection):
    """Refuses requests that another parser, such as a proxy's, could delimit differently."""

    problem = ""
    """Why the last request was refused, in one line."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self._chunks: int | None = None
        self._in_chunk = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        elif self._chunks is not None and not self._in_chunk and not self._is_chunk_whole():
            return h11.NEED_DATA
        event = super().next_event()
        match event:
            case h11.Request():
                self._check_framing(event)
            case h11.Data() if self._chunks is not None:
                self._count_chunk(event, self._chunks)
            case h11.EndOfMessage():
                self._chunks, self._in_chunk = None, False
        return event

    def _check_head(self, buffer: bytes) -> None:
        end = buffer.find(b"\r\n\r\n")
        head = buffer if end < 0 else buffer[: end + 2]
        if LINE_BREAK.search(head):
            raise self._refuse("lines of a request end with CR LF, and neither is used alone")
        if FOLDED.search(head):
            raise self._refuse("a header may not be continued on the next line")
        lengths = LENGTH.findall(head)
        if len(lengths) > 1 or (lengths and not lengths[0].strip(b" \t").isdigit()):
            raise self._refuse("content-length must be one number")

    def _check_framing(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names:
            raise self._refuse("a body has either a length or comes in chunks")
        if request.http_version < b"1.1":
            raise self._refuse("chunks need HTTP/1.1")
        self._chunks = 0

    def _is_chunk_whole(self) -> bool:
        """Whether the line before a chunk has arrived; refuses all but a plain size."""
        if self.their_state is not h11.SEND_BODY:
            return True
        buffer, is_closed = self.trailing_data
        if is_closed or (NEXT_CHUNK if self._chunks else CHUNK).match(buffer):
            return True
        line = buffer[:LONGEST_CHUNK_LINE]
        if len(line) == LONGEST_CHUNK_LINE or line.strip(CHUNK_BYTES):
            raise self._refuse(
                "a chunk begins with its size alone; extensions and trailers are not taken"
            )
        return False

    def _count_chunk(self, data: h11.Data, chunks: int) -> None:
        self._in_chunk = not data.chunk_end
        self._chunks = chunks + data.chunk_start
        if self._chunks > MOST_CHUNKS:
            raise self._refuse(f"a body has at most {MOST_CHUNKS} chunks")

    def _refuse(self, problem: str) -> h11.RemoteProtocolError:
        self.problem = problem
        return h11.RemoteProtocolError(problem)
