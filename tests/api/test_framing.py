"""Requests are delimited alike, however their bytes are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.framing import Framing, FramingError

REQUESTS = [
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\n\r\n0\r\n\r\nxy",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\r\n\r\n00\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
]
WRONG = [
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;x\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\n b\r\n\r\n",
]


def delimited(parts: list[bytes]) -> list[bytes]:
    """Return the requests of a connection, each put together from its pieces."""
    framing, requests = Framing(), [b""]
    for part in parts:
        framing.add(part)
        while piece := framing.next_piece():
            requests[-1] += piece
            if framing.is_done:
                requests.append(b"")
                framing.start_next()
    return requests[:-1]


def cut(data: bytes, offsets: list[int]) -> list[bytes]:
    ends = sorted(offset % (len(data) + 1) for offset in offsets)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.sampled_from(REQUESTS)), st.lists(st.integers(0, 10_000)))
def test_requests_are_delimited_alike_however_they_are_cut(
    requests: list[bytes], offsets: list[int]
) -> None:
    assert delimited(cut(b"".join(requests), offsets)) == requests


@given(st.sampled_from(WRONG), st.lists(st.integers(0, 10_000)))
def test_wrong_requests_are_refused_however_they_are_cut(wrong: bytes, offsets: list[int]) -> None:
    for parts in ([wrong], cut(wrong, offsets)):
        try:
            delimited(parts)
        except FramingError:
            continue
        raise AssertionError(f"taken: {parts}")
