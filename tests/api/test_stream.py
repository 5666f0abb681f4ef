"""The event stream: contents of frames, start and resumption, filters, and the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench import event_stream
from bench.event_stream import Frame, Refusal, Stream
from holdfast import AgentHarness, Dead, NewEvent, Turn
from holdfast.api import feed
from holdfast.api.limits import Limits
from holdfast.queue.record import Activity
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations
from tests.api.serving import serving, token_of

TURN = [
    "message_received",
    "agent_routed",
    "chain_step_start",
    "chain_step_done",
    "response_delta",
    "response_ready",
]


async def echo(turn: Turn) -> str | Dead:
    return Dead("broken") if turn.text == "fail" else f"you said {turn.text}"


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> AgentHarness:
    return AgentHarness(
        echo, default="coder", settings=Settings(home=tmp_path, database=database_url)
    )


def watching(port: int, **options: Any) -> AbstractAsyncContextManager[Stream]:
    """A stream for somebody who may read."""
    return event_stream.watching(
        port, **{**options, "headers": token_of(port, "read") | options.get("headers", {})}
    )


@asynccontextmanager
async def opened(port: int, **options: Any) -> AsyncIterator[Stream]:
    """A stream that has said where it begins."""
    async with watching(port, **options) as watched:
        hello = await watched.next()
        assert hello.event == "connected"
        assert hello.data["type"] == "connected"
        yield watched


async def take(watched: Stream, count: int) -> list[Frame]:
    return [await watched.next() for _ in range(count)]


async def rest(watched: Stream) -> int:
    """How many frames come before the server ends the stream."""
    async with asyncio.timeout(20):
        return len([frame async for frame in watched.frames() if frame.event])


async def test_a_message_is_told_from_receipt_to_response(app: AgentHarness) -> None:
    async with serving(app) as port, opened(port) as watched:
        assert watched.headers["content-type"].startswith("text/event-stream")
        message_id = await app.put("hi", sender="ann")
        frames = await take(watched, len(TURN))
    assert [frame.event for frame in frames] == TURN
    assert [frame.data["type"] for frame in frames] == TURN
    about = {"messageId": message_id, "agent": "coder", "channel": "api", "sender": "ann"}
    assert all(
        about.items() <= frame.data.items() and frame.data["timestamp"] > 10**12 for frame in frames
    )
    assert frames[3].data["response"] == "you said hi"
    assert len({frame.id for frame in frames}) == len(TURN)


async def test_a_dead_letter_is_told_with_what_a_retry_needs(app: AgentHarness) -> None:
    async with serving(app) as port, opened(port, query="?type=message_failed") as watched:
        await app.put("fail")
        failed = await watched.next()
        assert (failed.data["error"], failed.data["dead"]) == ("broken", True)
        assert len(await app.store.dead(Filter(ids=[failed.data["eventId"]]))) == 1


async def test_a_stream_begins_now_and_resumes_after_any_of_its_frames(app: AgentHarness) -> None:
    async with serving(app) as port:
        async with opened(port) as watched:
            begun_at = watched.last_id
            await app.put("one")
            frames = await take(watched, len(TURN))
        await app.put("two")
        for nth, frame in enumerate(frames):
            async with opened(port, last_id=frame.id) as again:
                assert again.last_id == frame.id
                more = await take(again, 2 * len(TURN) - nth - 1)
                assert [one.id for one in more[: len(TURN) - nth - 1]] == [
                    one.id for one in frames[nth + 1 :]
                ]
                assert [one.event for one in more[len(TURN) - nth - 1 :]] == TURN
        async with opened(port, query=f"?last_event_id={begun_at}") as again:
            assert [frame.id for frame in await take(again, len(TURN))] == [
                frame.id for frame in frames
            ]


async def test_a_stream_resumes_after_a_restart_and_from_another_process(
    app: AgentHarness, database_url: str
) -> None:
    async with serving(app) as port, opened(port) as watched:
        await app.put("one")
        last_id = (await take(watched, len(TURN)))[-1].id
    async with open_store(database_url) as other:
        await other.put(
            [],
            records=[Activity(({"type": "chain_handoff", "agent": "coder", "toAgent": "mate"},))],
        )
    async with serving(app) as port, opened(port, last_id=last_id) as watched:
        assert [frame.event for frame in await take(watched, 2)] == [
            "chain_handoff",
            "processor_start",
        ]
        async with open_store(database_url) as other:
            await other.put([], records=[Activity(({"type": "response_ready"},))])
        assert (await watched.next()).event == "response_ready"


async def test_a_position_older_than_what_is_kept_gives_a_gap_then_what_is_there(
    app: AgentHarness,
) -> None:
    async with serving(app) as port:
        async with opened(port, last_id="0") as watched:
            # Nothing was pruned yet, so a stream from the very beginning has no gap.
            assert (await watched.next()).event == "processor_start"
        await app.store.forget_activity(timedelta(0))
        first, _ = await app.store.activity_span()
        await app.put("new")
        async with opened(port, last_id="1.0") as watched:
            gap = await watched.next()
            assert (gap.event, gap.id) == ("gap", f"{first}.0")
            assert [frame.event for frame in await take(watched, len(TURN))] == TURN
        async with opened(port, last_id="99999999.0") as watched:
            assert (await watched.next()).event == "gap"


async def test_what_is_forgotten_keeps_its_place_from_which_others_go_on(
    database_url: str, tmp_path: Path
) -> None:
    """Resume at every frame of the row and around it, from the feed's window and from the store."""
    app = AgentHarness(settings=Settings(home=tmp_path, database=database_url))
    async with serving(app) as port, opened(port) as steady:
        begun_at = steady.last_id
        before = await _put_by_ann_and_bob(app, steady)
        await forget(
            open_observations(app.store), open_knowledge(app.store), "default", "user", "ann"
        )
        await app.store.put([], records=[Activity(({"type": "processor_start"},))])
        end = await steady.next()
        assert end.event == "processor_start"
        for nth, last_id in enumerate([begun_at, *(frame.id for frame in before)]):
            left = [frame.id for frame in before[nth:] if frame.data["messageId"] != "m1"] + [
                end.id
            ]
            async with opened(port, last_id=last_id) as again:
                assert [frame.id for frame in await take(again, len(left))] == left


async def _put_by_ann_and_bob(app: AgentHarness, watched: Stream) -> list[Frame]:
    """Twelve frames, in one row or two; those on Ann are in the middle of each."""
    new = [
        NewEvent(
            event={"kind": "message", "sender_id": sender, "message": "hi"}, message_id=message_id
        )
        for message_id, sender in (("m0", "bob"), ("m1", "ann"), ("m2", "bob"))
    ]
    ends = [
        {"type": kind, "messageId": id}
        for kind in ("chain_step_start", "chain_step_done")
        for id in ("m0", "m1", "m2")
    ]
    await app.store.put(new, records=[Activity(tuple(ends))])
    return await take(watched, 12)


@pytest.mark.parametrize("last_id", ["x", "1.x", "-1", "1.2.3", "9" * 30, "١"])
async def test_a_malformed_position_is_refused(app: AgentHarness, last_id: str) -> None:
    async with serving(app) as port:
        with pytest.raises(Refusal) as refused:
            async with watching(
                port, headers={"last-event-id": last_id.encode().decode("latin-1")}
            ):
                pass
    assert refused.value.status == 400
    assert "Last-Event-ID" in json.loads(refused.value.body)["error"]


async def test_filters_leave_out_and_positions_pass_what_they_leave_out(
    app: AgentHarness,
) -> None:
    app.add("writer", echo)
    async with (
        serving(app, limits=Limits(ping_seconds=0.2)) as port,
        opened(port, query="?agent=Writer&type=chain_step_done,response_ready") as watched,
    ):
        await app.put("one")
        await app.put("two", agent="writer", channel="web")
        assert [frame.data["agent"] for frame in await take(watched, 2)] == ["writer", "writer"]
        async with opened(port, query="?channel=web", last_id="0") as other:
            assert {frame.data["channel"] for frame in await take(other, 5)} == {"web"}
        async with opened(port, query="?channel=nowhere", last_id="0") as other:
            async with asyncio.timeout(20):
                async for frame in other.frames():
                    if frame.id:
                        break
            assert (frame.event, frame.comment) == ("", "still here")
            _, following = await app.store.activity_span()
            assert frame.id == f"{following}.0"


async def test_a_stream_needs_a_token(app: AgentHarness) -> None:
    async with serving(app) as port:
        with pytest.raises(Refusal) as refused:
            async with event_stream.watching(port):
                pass
    assert refused.value.status == 401


async def test_an_unknown_type_is_refused(app: AgentHarness) -> None:
    async with serving(app) as port:
        with pytest.raises(Refusal) as refused:
            async with watching(port, query="?type=nonsense"):
                pass
    assert refused.value.status == 400


async def test_silence_is_filled_with_comments(app: AgentHarness) -> None:
    assert Limits().ping_seconds == 15
    often = Limits(ping_seconds=0.05)
    async with serving(app, limits=often) as port, opened(port) as watched:
        async with asyncio.timeout(20):
            comments = [frame async for frame in _until(watched, 3)]
    assert all(frame.comment and not frame.event and not frame.id for frame in comments)


async def _until(watched: Stream, count: int) -> AsyncIterator[Frame]:
    async for frame in watched.frames():
        yield frame
        count -= 1
        if not count:
            return


async def test_streams_end_cleanly_when_the_server_stops(app: AgentHarness) -> None:
    async with serving(app) as port:
        connection = watching(port)
        watched = await connection.__aenter__()
        assert (await watched.next()).event == "connected"
        began_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began_at < 4
    assert await rest(watched) == 0
    await connection.__aexit__(None, None, None)


async def test_nothing_is_read_while_nobody_watches(app: AgentHarness) -> None:
    async with serving(app) as port:
        async with opened(port):
            pass
        calls = 0
        read = app.store.activity

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return await read(*args, **options)

        app.store.activity = counted  # type: ignore[method-assign]
        before = -1
        async with asyncio.timeout(20):
            # The server may take a moment to see that nobody watches any more.
            while calls != before:
                before = calls
                await asyncio.sleep(8 * feed.POLL.total_seconds())


async def test_a_slow_reader_blocks_nobody_is_disconnected_and_can_resume(
    app: AgentHarness,
) -> None:
    little = Limits(chunk_bytes=4096, window_bytes=256 * 1024)
    big = {"type": "chain_step_done", "response": "x" * 200_000}
    async with (
        serving(app, limits=little) as port,
        opened(port, limit=1024) as slow,
        opened(port) as quick,
    ):
        for _ in range(60):
            await app.store.put([], records=[Activity((big,))])
            assert (await quick.next()).event == "chain_step_done"
        received = await rest(slow)
        assert received < 60
        async with opened(port, last_id=slow.last_id) as again:
            assert len(await take(again, 60 - received)) == 60 - received
