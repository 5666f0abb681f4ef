"""The Discord channel: the unpatched library against the local Discord."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.channels.base import response_event
from holdfast.channels.buttons import question
from holdfast.channels.discord import DiscordChannel
from holdfast.channels.discord.access import complete_url
from holdfast.queue.audit import AuditFilter
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.discord import Discord as DiscordTable
from holdfast.store.chain import find_message
from holdfast.testing.discord import LocalDiscord
from holdfast.testing.discord.guild import ADA, BEN, BOT, GENERAL, OTHER_BOT, RANDOM
from tests.channels.discord_fixtures import discord
from tests.steps import finished, quick_harness, running, until

__all__ = ["discord"]

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url, pairing="open")


async def test_mentions_threads_and_direct_messages_are_answered_where_they_were_written(
    settings: Settings, discord: LocalDiscord
) -> None:
    thread = discord.guild.thread(GENERAL, "a thread")
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        return f"you said {turn.text}"

    async with running(quick_harness(answer), settings):
        asked = await discord.mention(f"hello <@{BEN}> in <#{RANDOM}>")
        direct = await discord.say_directly("directly")
        await discord.mention("inside", room=thread.id)
        [reply] = await discord.replies()
        [direct_reply] = await discord.replies(direct["channel_id"])
        [inside] = await discord.replies(thread.id)
    assert reply["content"] == "you said hello @Ben in #random"
    assert reply["message_reference"]["message_id"] == asked["id"]
    assert direct_reply["content"] == "you said directly"
    assert "message_reference" not in direct_reply
    assert inside["content"] == "you said inside"
    found = {turn.conversation: turn for turn in turns}
    assert set(found) == {
        f"discord:{GENERAL}",
        f"discord:{direct['channel_id']}",
        f"discord:{GENERAL}:{thread.id}",
    }
    turn = found[f"discord:{GENERAL}"]
    assert (turn.channel, turn.sender, turn.event["sender_id"]) == ("discord", "Ada", ADA)
    assert turn.message_id == f"discord_{BOT}_{GENERAL}_{asked['id']}"


async def test_only_messages_for_the_bot_are_stored(
    settings: Settings, discord: LocalDiscord
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        await discord.say("among people")
        await discord.mention("from a bot", user=OTHER_BOT)
        await discord.say("a webhook", room=discord.guild.direct_room(BEN).id, webhook_id="42")
        await discord.say(f"<@{BOT}> somebody joined", type=7)
        asked = await discord.mention("hello")
        await discord.replies()
        answer = discord.bot_messages()[0]
        reference = {"message_id": answer["id"], "channel_id": GENERAL}
        await discord.say("a reply", message_reference=reference, referenced_message=answer)
        await discord.replies(count=2)
        ended = await finished(app.store, count=2, queue="inbox")
    assert str(ended[0].message_id).endswith(f"_{asked['id']}")
    assert [event.event["message"] for event in ended] == ["hello", "a reply"]


async def test_a_message_that_comes_again_is_the_same_message(
    settings: Settings, discord: LocalDiscord
) -> None:
    async with running(quick_harness(echo), settings):
        asked = await discord.mention("one")
        await discord.deliver(asked)
        await discord.replies()
        await discord.deliver(asked)
        await discord.mention("two")
        texts = [reply["content"] for reply in await discord.replies(count=2)]
    assert texts == ["you said one", "you said two"]


async def test_a_long_answer_is_split_at_2000_characters_without_breaking_code(
    settings: Settings, discord: LocalDiscord
) -> None:
    code = "```python\n" + "\n".join(f"print({number})" for number in range(400)) + "\n```"

    async def answer(turn: Turn) -> str:
        return f"before\n\n{code}\n\nafter"

    async with running(quick_harness(answer), settings):
        await discord.mention("go on")
        texts = [reply["content"] for reply in await discord.replies(count=3)]
    assert all(len(text) <= 2000 and text.count("```") % 2 == 0 for text in texts)
    assert "after" in texts[-1]
    assert [reply.get("message_reference") is None for reply in discord.bot_messages()] == [
        False,
        True,
        True,
    ]


async def test_files_come_in_and_go_out_within_their_limits(
    settings: Settings, discord: LocalDiscord
) -> None:
    (settings.home / "files").mkdir()
    (settings.home / "files" / "a.txt").write_text("out")
    contents: list[bytes] = []

    async def answer(turn: Turn) -> Reply:
        contents.extend(path.read_bytes() for path in await turn.files())
        return Reply("here", files=("a.txt",))

    small = discord.rest.attachment("small.txt", b"in")
    large = discord.rest.attachment("large.bin", b"x" * 101)
    async with running(quick_harness(answer), settings):
        await discord.mention("files", attachments=[small, large])
        text, file = await discord.replies(count=2)
    assert contents == [b"in"]
    assert text["content"] == "here"
    [sent] = file["attachments"]
    assert (sent["filename"], discord.guild.files[sent["id"]]) == ("a.txt", b"out")


async def test_edits_and_deletions_count_until_the_claim(
    settings: Settings, discord: LocalDiscord
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        begun.set()
        await go_on.wait()
        return f"you said {turn.text}"

    app = quick_harness(answer)
    async with running(app, settings):
        await discord.mention("first")
        await begun.wait()
        edited, deleted = await discord.mention("tpyo"), await discord.mention("never mind")
        await discord.edit(edited, f"<@{BOT}> typo")
        await discord.delete(deleted)
        last = await discord.mention("last")

        id = f"discord_{BOT}_{GENERAL}_{last['id']}"
        await until(lambda: find_message(app.store, id))
        go_on.set()
        texts = [reply["content"] for reply in await discord.replies(count=3)]
    assert texts == ["you said first", "you said typo", "you said last"]


async def test_an_agent_types_while_it_works_and_its_answer_grows_in_one_message(
    settings: Settings, discord: LocalDiscord
) -> None:
    async def answer(turn: Turn) -> None:
        await turn.write("one ")
        await discord.until(lambda: discord.bot_messages())
        await turn.write("two")

    async with running(quick_harness(answer), settings):
        await discord.mention("tell me")
        await discord.until(
            lambda: discord.bot_messages() and discord.bot_messages()[0]["content"] == "one two"
        )
    assert discord.rest.typing == [GENERAL]
    assert len(discord.bot_messages()) == 1


async def test_an_agent_gets_the_lines_of_a_thread(
    settings: Settings, discord: LocalDiscord
) -> None:
    thread = discord.guild.thread(GENERAL, "a thread")
    lines: list[tuple[str, str, bool]] = []

    async def answer(turn: Turn) -> str:
        lines.extend((line.sender, line.text, line.is_own) for line in await turn.thread())
        return "seen"

    async with running(quick_harness(answer), settings):
        await discord.say("earlier", room=thread.id, user=BEN)
        await discord.mention("one", room=thread.id)
        await discord.replies(thread.id)
        await discord.mention("two", room=thread.id)
        await discord.replies(thread.id, count=2)
    assert lines == [
        ("Ben", "earlier", False),
        *[("Ben", "earlier", False), ("Ada", "one", False), ("Holdfast", "seen", True)],
    ]


@pytest.mark.parametrize(
    ("given", "complete"),
    [
        ("", "https://discord.com/api/v10"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1/api/v10"),
        ("http://127.0.0.1:1/api/", "http://127.0.0.1:1/api/v10"),
        ("http://127.0.0.1:1/api/v9", "http://127.0.0.1:1/api/v9"),
    ],
)
def test_a_base_address_gets_the_path_of_the_api(engine: str, given: str, complete: str) -> None:
    assert complete_url(given) == complete


async def test_each_of_several_bots_answers_the_messages_that_mention_it(
    settings: Settings, discord: LocalDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECOND_TOKEN", discord.other_token)
    tables = (DiscordTable(), DiscordTable(token_variable="SECOND_TOKEN"))
    app = quick_harness(echo)
    async with running(app, settings, channels=Channels(discord=tables)):
        channel = app.channels["discord"]
        await discord.mention("one")
        await discord.mention("two", bot=OTHER_BOT)
        await discord.until(lambda: discord.bot_messages(bot=OTHER_BOT))
        ended = await finished(app.store, 2, queue="outbox")
        lines = await channel.check()
        discord.other_token = "another"
        discord.gateway.drop(forget=True)
        refused = "SECOND_TOKEN: Discord refuses the token (401); reset it"
        await until(lambda: list(channel.problems) == [refused])
        await discord.mention("three")
        await discord.replies(count=2)
    texts = [
        [message["content"] for message in discord.bot_messages(bot=bot)]
        for bot in (BOT, OTHER_BOT)
    ]
    assert texts == [["you said one", "you said three"], ["you said two"]]
    assert [one.attempts for one in ended] == [1, 1]
    assert [line.name for line in lines if "SECOND_TOKEN" in line.name]


async def test_a_button_sends_the_signal_that_its_turn_waits_for(
    settings: Settings, discord: LocalDiscord
) -> None:
    async def answer(turn: Turn) -> str:
        async def ask() -> None:
            choices = {"Yes": True, "No": False}
            await app.store.put([question(turn.primary, "Deploy?", "approval", choices)])

        await turn.step("ask", ask)
        return f"approved: {await turn.signal('approval')}"

    app = quick_harness(answer)
    async with running(app, settings):
        await discord.mention("deploy")
        [asked] = await discord.replies()
        # The button of another room, and one that no response offered, do nothing.
        direct = discord.guild.direct_room(BEN)
        await discord.press(asked | {"channel_id": direct.id}, "Yes", user=BEN)
        forged = [{"components": [{"label": "Yes", "custom_id": "hf:999999:0"}]}]
        await discord.press(asked | {"components": forged}, "Yes")
        await discord.until(lambda: len(discord.rest.whispers) == 2)
        interaction = await discord.press(asked, "Yes")
        await discord.replies(count=2)
        await discord.until(lambda: not asked["components"])
        [entry] = await app.store.audit_log(AuditFilter(action="signalled"))
        person = await app.store.pseudonym(f"default:USER:discord:id:{ADA}")
        assert entry.actor == f"discord:{person}"
    assert discord.rest.whispers == ["This question is closed."] * 2
    assert interaction in discord.rest.answered_interactions
    assert discord.bot_messages()[1]["content"] == "approved: True"


async def test_the_rooms_of_a_limited_number_of_people_are_remembered(
    settings: Settings, discord: LocalDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.channels.discord.MOST_PEOPLE", 1, raising=False)
    app = quick_harness(echo)
    async with running(app, settings):
        channel = app.channels["discord"]
        assert isinstance(channel, DiscordChannel)
        for count, person in enumerate((ADA, BEN), 1):
            payload = {"kind": "response", "channel": "discord", "sender_id": person}
            await app.store.put([response_event(payload | {"message": "hello"})])
            await finished(app.store, count, queue="outbox")
        assert [person for _, person in channel._people] == [int(BEN)]
