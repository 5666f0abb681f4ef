"""HTTP framing: h11 without the leniencies that allow request smuggling."""

from __future__ import annotations

import re

import h11

MOST_CHUNKS = 4096
"""Maximum number of chunks of a body: many tiny chunks would cost much time."""
LONGEST_CHUNK_LINE = 20

CHUNK_BYTES = b"0123456789abcdefABCDEF\r\n"
# The last chunk is matched with its end, any other with its first byte,
# so that h11 always gets whole lines.
CHUNK = re.compile(rb"0{1,8}\r\n\r\n|(?!0{1,8}\r\n)[0-9a-fA-F]{1,8}\r\n.", re.DOTALL)
NEXT_CHUNK = re.compile(rb"\r\n(?:%b)" % CHUNK.pattern, re.DOTALL)


class Framing(h11.Connection):
    """Refuses requests that another parser, such as a proxy's, could delimit differently."""

    problem = ""
    """Why the last request was refused, in one line."""

    def __init__(self, headers: bytes = b"") -> None:
        """Create a server's side; `headers`, as lines, are added to every response."""
        super().__init__(h11.SERVER)
        self._headers = headers
        self._chunks: int | None = None
        self._in_chunk = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            buffer = self.trailing_data[0]
            if buffer:
                self._check_head(buffer)
        elif self._chunks is not None and not self._in_chunk and not self._is_chunk_whole():
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check_framing(event)
        elif self._chunks is not None:
            if isinstance(event, h11.Data):
                self._count_chunk(event, self._chunks)
            elif isinstance(event, h11.EndOfMessage):
                self._chunks, self._in_chunk = None, False
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        pieces = super().send_with_data_passthrough(event)
        if pieces is not None and isinstance(event, h11.Response):
            # The last piece is the empty line that ends the head.
            pieces.insert(-1, self._headers)
        return pieces

    def _check_head(self, buffer: bytes) -> None:
        end = buffer.find(b"\r\n\r\n")
        head = buffer if end < 0 else buffer[: end + 2]
        # Counting is several times as quick as a pattern. The last CR may still wait for its LF.
        breaks = head.count(b"\r\n")
        if head.count(b"\n") != breaks or head.count(b"\r") - head.endswith(b"\r") != breaks:
            raise self._refuse("lines of a request end with CR LF, and neither is used alone")
        if b"\n " in head or b"\n\t" in head:
            raise self._refuse("a header may not be continued on the next line")
        _, *lengths = head.lower().split(b"\ncontent-length:")
        if lengths and not _is_one_number(lengths):
            raise self._refuse("content-length must be one number")

    def _check_framing(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names:
            raise self._refuse("a body either has a length or comes in chunks")
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


def _is_one_number(lengths: list[bytes]) -> bool:
    """Return whether there is one length, and it is a number, as far as its line has arrived."""
    value, is_whole, _ = lengths[0].partition(b"\r")
    return len(lengths) == 1 and (not is_whole or value.strip(b" \t").isdigit())
