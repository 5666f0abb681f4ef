"""Agents of a team hand messages on by tags in their replies; the person who asked gets the
answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Done, Reply, Retry, Turn
from holdfast.agents.base import prompt_of
from holdfast.agents.turn import Handoff
from holdfast.queue.event import INBOX, FinishedEvent, NewEvent
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.routing.router import Address
from holdfast.testing.trial import LEASE, Trial
from tests.routing.conftest import Stage

ADA = Address(channel="web", sender="Ada", sender_id="ada")


async def replies_to(play: Trial, channel: str = "api") -> list[tuple[str, str]]:
    return [(one.event["agent"], one.event["message"]) for one in await play.responses(channel)]


async def handed_on(play: Trial) -> list[FinishedEvent]:
    found = await play.store.finished(Filter(queue=INBOX), limit=1000)
    return [event for event in found[::-1] if event.hops > 0]


async def test_a_teammate_gets_the_text_and_the_frame_of_the_hand_off(
    stage: Stage, play: Trial
) -> None:
    turns: list[Turn] = []
    stage.says("coder", "We need tests.\n[@writer: write fix arr[0]]\nSoon.")
    stage.scripts["writer"] = turns.append
    await play.say("@dev help")
    await play.work()
    [turn] = turns
    framed = (
        "[Message from teammate @coder]\n"
        "We need tests.\nSoon.\n\nDirected to you:\nwrite fix arr[0]"
    )
    assert turn.text == "write fix arr[0]"
    assert turn.from_agent == "coder"
    assert turn.handoff == Handoff("coder", "We need tests.\nSoon.")
    assert prompt_of(turn) == framed
    [line] = await play.store.agent_messages("writer", limit=10)
    assert line.content == framed


async def test_a_person_s_message_has_no_frame(stage: Stage, play: Trial) -> None:
    turns: list[Turn] = []
    stage.scripts["coder"] = turns.append
    await play.say("@coder help")
    await play.work()
    assert [(turn.handoff, prompt_of(turn)) for turn in turns] == [(None, "help")]


async def test_the_answer_to_a_hand_off_goes_to_the_person_who_asked(
    stage: Stage, play: Trial
) -> None:
    stage.says("coder", "We need tests.\n[@writer: write fix arr[0]]\nSoon.")
    stage.says("writer", "Done.")
    message_id = await play.say("@dev help", address=ADA)
    await play.work()
    first, second = await play.responses("web")
    assert (first.event["agent"], first.event["message"]) == ("coder", "We need tests.\nSoon.")
    assert second.event == {
        "kind": "response",
        "channel": "web",
        "conversation": "web:ada",
        "sender": "Ada",
        "sender_id": "ada",
        "message": "Done.",
        "original_message": "@dev help",
        "message_id": message_id,
        "agent": "writer",
        "agent_profile": {"name": "writer", "icon": None},
    }
    assert second.lane == first.lane
    [event] = await handed_on(play)
    assert (event.message_id, event.target, event.lane, event.hops) == (
        f"internal_{message_id}/1",
        "writer",
        "writer/web:ada",
        1,
    )
    assert (event.event["from_agent"], event.routed_team, event.max_attempts) == (
        "coder",
        "dev",
        5,
    )


async def test_histories_keep_replies_as_they_were_written(stage: Stage, play: Trial) -> None:
    stage.says("coder", "Hm. [@writer: help]")
    message_id = await play.say("hi")
    await play.work()
    coder = (await play.store.agent_messages("coder"))[::-1]
    assert [(line.role, line.content, line.message_id) for line in coder] == [
        ("user", "hi", message_id),
        ("assistant", "Hm. [@writer: help]", message_id),
    ]
    [writer] = await play.store.agent_messages("writer")
    assert (writer.role, writer.sender, writer.message_id) == (
        "user",
        "API",
        f"internal_{message_id}/1",
    )


async def test_a_reply_of_tags_only_is_no_answer(stage: Stage, play: Trial) -> None:
    stage.says("coder", "[@writer: you do it]")
    stage.says("writer", "I did.")
    await play.say("hi")
    await play.work()
    assert await replies_to(play) == [("writer", "I did.")]
    assert stage.received[1] == ("writer", "you do it")


async def test_every_tag_and_every_name_counts_once(stage: Stage, play: Trial) -> None:
    stage.says("coder", "[@WRITER, @tester,writer: one][@writer: two]")
    message_id = await play.say("@dev hi")
    await play.work()
    assert sorted(stage.received[1:]) == [
        ("tester", "one"),
        ("writer", "one"),
        ("writer", "two"),
    ]
    assert sorted(str(event.message_id) for event in await handed_on(play)) == [
        f"internal_{message_id}/{n}" for n in (1, 2, 3)
    ]


IGNORED = [
    "[@coder: myself]",
    "[@nobody: x]",
    "[@painter: not of this team]",
    "[@writer: ]",
    "[#art: not this team]",
    "[#nowhere: x]",
    "[#dev: ]",
    "[send_file: ../secret]",
    "[send_file: missing.png]",
    "```\n[@writer: x]\n```",
]


@pytest.mark.parametrize("text", IGNORED)
async def test_tags_without_a_valid_target_stay_in_the_text(
    stage: Stage, play: Trial, text: str
) -> None:
    stage.says("coder", text)
    await play.say("@dev hi")
    await play.work()
    assert await replies_to(play) == [("coder", text)]
    assert await handed_on(play) == []
    assert await play.store.chat_messages("dev") == []


async def test_tags_of_a_team_message_reach_that_team_and_others_all_teammates(
    stage: Stage, play: Trial
) -> None:
    stage.says("coder", "[@painter: x] and [@writer: y]", "[@painter: x] and [@writer: y]")
    await play.say("@dev hi")
    await play.work()
    assert await replies_to(play) == [("coder", "[@painter: x] and")]
    assert [event.target for event in await handed_on(play)] == ["writer"]
    await play.say("@coder hi")
    await play.work()
    assert [(event.target, event.routed_team) for event in (await handed_on(play))[1:]] == [
        ("painter", "art"),
        ("writer", "dev"),
    ]


async def test_a_room_post_is_one_line_and_a_message_to_every_other_member(
    stage: Stage, play: Trial
) -> None:
    stage.says("coder", "Asking. [#dev: ideas?]")
    stage.says("tester", "none")
    message_id = await play.say("@dev hi", address=ADA)
    await play.work()
    [line] = await play.store.chat_messages("dev")
    assert (line.from_agent, line.message) == ("coder", "ideas?")
    assert sorted(stage.received[1:]) == [
        ("tester", "[In room #dev, from @coder]\nideas?"),
        ("writer", "[In room #dev, from @coder]\nideas?"),
    ]
    copies = await handed_on(play)
    assert sorted(str(event.message_id) for event in copies) == [
        f"chat_{message_id}/1",
        f"chat_{message_id}/2",
    ]
    assert {event.event["from_agent"] for event in copies} == {"coder"}
    assert await replies_to(play, "web") == [("coder", "Asking."), ("tester", "none")]


@pytest.mark.parametrize("policy", ["conversation", "agent", "none"])
async def test_waiting_room_copies_are_one_turn(stage: Stage, play: Trial, policy: str) -> None:
    policies = stage.app.policies
    policies["writer"] = type(policies["writer"])(lane=policy)  # type: ignore[arg-type]
    for text in ("one", "two", "three"):
        await play.post("dev", text)
    stage.says("writer", "[@tester: look] ok")
    await play.work()
    assert [text for agent, text in stage.received if agent == "writer"] == [
        "[In room #dev, from @user]\none\n\n[In room #dev, from @user]\ntwo\n\n"
        "[In room #dev, from @user]\nthree"
    ]
    [(turn, _)] = [(turn, end) for turn, end in play.worked if turn.agent == "writer"]
    assert turn.message_id == f"chatroom_batch_{turn.primary.message_id}"
    lines = (await play.store.agent_messages("writer"))[::-1]
    assert [line.role for line in lines] == ["user", "user", "user", "assistant"]
    assert lines[3].message_id == turn.message_id
    [event] = await handed_on(play)
    assert event.message_id == f"internal_{turn.message_id}/1"


async def test_a_failed_batch_is_retried_one_by_one(stage: Stage, play: Trial) -> None:
    for text in ("one", "two"):
        await play.post("art", text)
    stage.scripts["painter"] = lambda turn: (
        Retry("no", timedelta(0)) if len(turn.events) > 1 else None
    )
    await play.work()
    assert [text.split("\n")[-1] for agent, text in stage.received if agent == "painter"] == [
        "two",
        "one",
        "two",
    ]


async def test_other_messages_do_not_join_a_batch(stage: Stage, play: Trial) -> None:
    stage.app.policies["writer"] = type(stage.app.policies["writer"])(lane="agent")
    await play.post("dev", "one")
    await play.say("@writer direct")
    await play.post("dev", "two")
    await play.work()
    assert [text.split("\n")[-1] for agent, text in stage.received if agent == "writer"] == [
        "one",
        "direct",
        "two",
    ]


async def test_a_post_of_a_person_is_answered_in_the_room(stage: Stage, play: Trial) -> None:
    stage.says("writer", "Here! [@tester: you too]")
    stage.says("tester", None, "Yes.")
    await play.post("dev", "anybody?")
    await play.work()
    lines = [(line.from_agent, line.message) for line in await play.store.chat_messages("dev")]
    assert lines == [("tester", "Yes."), ("writer", "Here!"), ("user", "anybody?")]
    assert await play.responses("chatroom") == []


async def test_a_file_below_the_root_goes_with_the_answer(stage: Stage, play: Trial) -> None:
    play.files.mkdir()
    (play.files / "plot.png").write_text("x")
    (play.files / "own.txt").write_text("x")
    stage.says("coder", Reply("Look: [send_file: plot.png]", ("own.txt",)), "[send_file: plot.png]")
    for _ in range(2):
        await play.say("hi")
        await play.work()
    first, second = await play.responses()
    assert (first.event["message"], first.event["files"]) == ("Look:", ["own.txt", "plot.png"])
    assert (second.event["message"], second.event["files"]) == ("", ["plot.png"])


async def test_a_reply_goes_without_files_that_are_not_below_the_root(
    stage: Stage, play: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    play.files.mkdir()
    (play.files / "own.txt").write_text("x")
    (play.files.parent / "secret").write_text("x")
    named = (str(play.files / "own.txt"), "../secret", "missing.png")
    stage.says("coder", Reply("Look", named, {"cost": 3}))
    await play.say("hi")
    await play.work()
    [response] = await play.responses()
    assert (response.event["message"], response.event["files"]) == (
        "Look",
        ["own.txt", "missing.png"],
    )
    assert response.event["metadata"] == {"cost": 3, "files_refused": ["../secret"]}
    assert "outside the files root" in caplog.text


async def test_a_repeated_turn_hands_on_the_same_messages(stage: Stage, play: Trial) -> None:
    stage.scripts["coder"] = lambda turn: "[@writer: one] [#dev: two] rest"
    message_id = await play.say("@dev hi")
    handle = stage.app.worker(play.store, play.files).handle
    first = await claim(play)
    lost = await handle(first)
    play.clock.tick(minutes=11)
    second = await claim(play)
    again = await handle(second)
    assert isinstance(lost, Done)
    assert isinstance(again, Done)
    assert [emit.message_id for emit in lost.emits] == [emit.message_id for emit in again.emits]
    await play.store.settle([(second, again)])
    await play.store.settle([(first, lost)])
    await play.work()
    assert sorted(str(event.message_id) for event in await handed_on(play)) == [
        f"chat_{message_id}/2",
        f"chat_{message_id}/3",
        f"internal_{message_id}/1",
    ]
    assert len(await play.store.chat_messages("dev")) == 1


async def claim(play: Trial) -> LeasedTurn:
    [turn] = await play.store.claim(INBOX, ["coder"], limit=1, lease=LEASE)
    return turn


async def test_a_slack_message_is_handed_on_and_answered_in_its_thread(
    stage: Stage, play: Trial
) -> None:
    event = {
        "type": "app_mention",
        "team": "T1",
        "channel": "C1",
        "ts": "1.5",
        "user": "U1",
        "text": "<@B> help",
    }
    await play.store.put(
        [NewEvent(event=event, message_id="slack_T1_C1_1.5", lane="coder/slack:T1:C1:1.5")]
    )
    stage.says("coder", "[@writer: answer]")
    stage.says("writer", "Hello")
    await play.work()
    [response] = await play.responses("slack")
    assert (
        response.event["conversation"],
        response.event["sender_id"],
        response.event["message_id"],
    ) == (
        "slack:T1:C1:1.5",
        "U1",
        "slack_T1_C1_1.5",
    )
    [copy] = await handed_on(play)
    assert copy.max_attempts is None
