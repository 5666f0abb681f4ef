"""Faults between Discord and us: one answer, nothing lost, and problems that are named."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.echo import echo
from holdfast.channels.discord import factory
from holdfast.channels.discord.access import access_of
from holdfast.channels.discord.bot import Gateway
from holdfast.channels.watermark import Watermarks
from holdfast.errors import StoreUnavailable
from holdfast.queue.event import NewEvent
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.discord import Discord as DiscordTable
from holdfast.testing.discord import LocalDiscord
from holdfast.testing.discord.gateway import BAD_TOKEN, MESSAGE_CONTENT
from holdfast.testing.discord.guild import ADA, BEN, GENERAL, OTHER_BOT
from tests.channels.discord_fixtures import QUICK, discord
from tests.channels.platforms import undelivered
from tests.steps import finished, quick_harness, running, until

__all__ = ["discord"]

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def limit(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Run all bots within these limits."""
    monkeypatch.setattr(
        factory,
        "access_of",
        lambda *given: replace(access_of(*given), limits=replace(QUICK, **limits)),
    )


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url, pairing="open")


async def test_a_rate_limit_is_obeyed_without_using_an_attempt(
    settings: Settings, discord: LocalDiscord
) -> None:
    discord.faults.plan("create_message", "ratelimited", seconds=1)
    app = quick_harness(echo)
    async with running(app, settings):
        asked_at = time.monotonic()
        await discord.mention("hello")
        await discord.replies()
        assert time.monotonic() - asked_at > 1
        [ended] = await finished(app.store, queue="outbox")
    assert ended.attempts == 1


@pytest.mark.parametrize("code", [10003, 50001, 50007, 50013])
async def test_a_permanent_refusal_is_a_dead_letter_with_the_code_of_discord(
    settings: Settings, discord: LocalDiscord, code: int
) -> None:
    discord.faults.plan("create_message", "error", code=str(code))
    app = quick_harness(echo)
    async with running(app, settings):
        await discord.mention("hello")
        [ended] = await finished(app.store, queue="outbox")
        assert await undelivered(app) == [("dead", str(code))]
    assert (ended.last_error or "").split()[0] == str(code)


async def test_a_send_of_unknown_end_is_repeated_with_its_nonce(
    settings: Settings, discord: LocalDiscord
) -> None:
    discord.faults.plan("create_message", "drop_after")
    app = quick_harness(echo)
    async with running(app, settings):
        await discord.mention("hello")
        await finished(app.store, queue="outbox")
    assert [reply["content"] for reply in discord.bot_messages()] == ["you said hello"]
    assert discord.faults.calls["create_message"] == 2


async def test_a_send_of_unknown_end_is_looked_up_after_discord_forgot_its_nonce(
    settings: Settings, discord: LocalDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, nonce_window=timedelta(0))
    discord.rest.nonce_seconds = 0.0
    discord.faults.plan("create_message", "drop_after")
    app = quick_harness(echo)
    async with running(app, settings):
        await discord.mention("hello")
        await finished(app.store, queue="outbox")
    assert [reply["content"] for reply in discord.bot_messages()] == ["you said hello"]
    assert discord.faults.calls["create_message"] == 1


async def test_a_dropped_connection_is_resumed_and_misses_nothing(
    settings: Settings, discord: LocalDiscord
) -> None:
    async with running(quick_harness(echo), settings):
        discord.gateway.drop()
        await discord.mention("while away")
        await discord.until(lambda: discord.gateway.counts["resume"] == 1)
        await discord.replies()
        await discord.gateway.ask_to_reconnect()
        await discord.until(lambda: discord.gateway.counts["resume"] == 2)
        await discord.mention("again")
        texts = [reply["content"] for reply in await discord.replies(count=2)]
    assert texts == ["you said while away", "you said again"]
    assert discord.gateway.counts["identify"] == 1


async def test_missed_messages_are_fetched_after_a_session_that_cannot_be_resumed(
    settings: Settings, discord: LocalDiscord
) -> None:
    async with running(quick_harness(echo), settings):
        await discord.mention("before")
        await discord.replies()
        discord.gateway.drop(forget=True)
        await discord.mention("while away")
        await discord.replies(count=2)
        await discord.gateway.invalidate()
        await discord.mention("at the change")
        texts = [reply["content"] for reply in await discord.replies(count=3)]
    assert texts == ["you said before", "you said while away", "you said at the change"]
    assert discord.gateway.counts["identify"] == 3


async def test_a_session_that_ends_before_its_servers_are_known_holds_up_nothing(
    settings: Settings, discord: LocalDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*arguments: object, **further: object) -> None:
        """The library waits five seconds before it signs in again."""

    monkeypatch.setattr(Gateway, "before_identify_hook", at_once)
    # Longer than it takes to sign in again, so that the first wait for the servers is broken off.
    limit(monkeypatch, guilds_within=timedelta(seconds=1))
    async with running(quick_harness(echo), settings):
        discord.gateway.drop(forget=True)
        await discord.until(lambda: discord.gateway.counts["identify"] == 2)
        await discord.gateway.invalidate()
        await discord.until(lambda: discord.gateway.counts["identify"] == 3)
        await discord.mention("hello")
        assert [reply["content"] for reply in await discord.replies()] == ["you said hello"]


async def test_messages_written_while_no_process_ran_are_answered_at_the_next_start(
    settings: Settings, discord: LocalDiscord
) -> None:
    thread = discord.guild.thread(GENERAL, "a thread")
    await discord.mention("before the first start")
    async with running(quick_harness(echo), settings):
        direct = await discord.say_directly("one")
        await discord.replies(direct["channel_id"])
    old = time.time() - 48 * 3600
    discord.guild.post(discord.guild.rooms[GENERAL], BEN, "<@700> too old", at=old)
    for number in range(3):
        await discord.mention(str(number), room=thread.id)
    await discord.say_directly("two")
    app = quick_harness(echo)
    async with running(app, settings):
        texts = [reply["content"] for reply in await discord.replies(thread.id, count=3)]
        await discord.replies(direct["channel_id"], count=2)
        gap = await Watermarks(app.store, "discord").last_gap()
    assert texts == [f"you said {number}" for number in range(3)]
    assert gap is not None
    assert gap.messages == 4
    assert discord.bot_messages() == []


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [({"gap_messages": 2}, ["1", "2"]), ({"gap_age": timedelta(0)}, [])],
)
async def test_a_gap_brings_no_more_than_its_limits_of_number_and_age(
    settings: Settings,
    discord: LocalDiscord,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    wanted: list[str],
) -> None:
    limit(monkeypatch, **limits)
    async with running(quick_harness(echo), settings):
        pass
    for number in range(3):
        await discord.mention(str(number))
    app = quick_harness(echo)
    async with running(app, settings):
        await discord.mention("new")
        await discord.until(lambda: "you said new" in contents(discord))
        gap = await Watermarks(app.store, "discord").last_gap()
    assert contents(discord) == [f"you said {text}" for text in (*wanted, "new")]
    assert gap is not None
    assert gap.messages == len(wanted)


@pytest.mark.parametrize("skips", [True, False])
async def test_what_a_person_has_answered_meanwhile_is_left_out_where_the_settings_say_so(
    settings: Settings, discord: LocalDiscord, skips: bool
) -> None:
    channels = Channels(discord=(DiscordTable(skip_answered=skips),))
    async with running(quick_harness(echo), settings, channels=channels):
        pass
    replied, threaded, open_ = [await discord.mention(text) for text in ("reply", "thread", "open")]
    reference = {"message_id": replied["id"], "channel_id": GENERAL}
    await discord.say("I know", user=BEN, message_reference=reference, type=19)
    thread = discord.guild.thread(GENERAL, "a thread", threaded["id"])
    await discord.say("me, too", user=BEN, room=thread.id)
    # Neither the sender nor another bot answers a question.
    for user in (ADA, OTHER_BOT):
        reference = {"message_id": open_["id"], "channel_id": GENERAL}
        await discord.say("nobody?", user=user, message_reference=reference, type=19)
    async with running(quick_harness(echo), settings, channels=channels) as app:
        await discord.until(lambda: "you said open" in contents(discord))
        gap = await until(lambda: Watermarks(app.store, "discord").last_gap())
    wanted = ["you said open"] if skips else [f"you said {t}" for t in ("reply", "thread", "open")]
    assert contents(discord) == wanted
    assert gap.messages == len(wanted)


def contents(discord: LocalDiscord) -> list[str]:
    return [reply["content"] for reply in discord.bot_messages()]


async def test_a_refused_token_is_a_problem_that_ends_nothing(
    settings: Settings, discord: LocalDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, discord.token = discord.token, "another token"
    app = quick_harness(echo)
    async with running(app, settings):
        [problem] = app.channels["discord"].problems
        assert problem.startswith("DISCORD_BOT_TOKEN: Discord refuses the token")
        assert token not in problem
        discord.token = token
        await discord.until(lambda: not app.channels["discord"].problems)
        # Revoked while it runs.
        discord.token = "revoked"
        await discord.gateway.close(BAD_TOKEN)
        await discord.until(lambda: app.channels["discord"].problems)
        assert not app.stopping


async def test_a_missing_intent_is_a_problem_that_names_it(
    settings: Settings, discord: LocalDiscord
) -> None:
    discord.gateway.denied_intents = MESSAGE_CONTENT
    discord.rest.application_flags = 0
    app = quick_harness(echo)
    async with running(app, settings):
        [problem] = app.channels["discord"].problems
        assert "Message Content Intent" in problem
        token, intents = await app.channels["discord"].check()
    assert (token.state, token.detail) == ("ok", "the bot is holdfast")
    assert intents.state == "fail"
    assert "Message Content Intent" in intents.detail


async def test_doctor_reports_a_good_bot_a_refused_one_and_an_unreachable_server(
    settings: Settings, discord: LocalDiscord
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        channel = app.channels["discord"]
        assert [line.state for line in await channel.check()] == ["ok", "ok"]
        discord.token = "another token"
        [refused] = await channel.check()
        discord.faults.plan("login", "status", times=5)
        [away] = await channel.check()
    assert "refuses DISCORD_BOT_TOKEN (401)" in refused.detail
    assert "cannot be reached" in away.detail


async def test_a_server_that_is_away_is_found_again(
    settings: Settings, discord: LocalDiscord
) -> None:
    discord.faults.plan("login", "drop_before", times=10)
    app = quick_harness(echo)

    def problems() -> Sequence[str]:
        return app.channels["discord"].problems if "discord" in app.channels else ()

    reported = asyncio.ensure_future(until(problems))
    async with running(app, settings):
        await discord.mention("hello")
        assert [reply["content"] for reply in await discord.replies()] == ["you said hello"]
        assert not problems()
    [problem] = await reported
    assert problem.startswith("DISCORD_BOT_TOKEN: Discord is out of reach")


async def test_a_message_that_could_not_be_stored_is_tried_again_in_order(
    settings: Settings, discord: LocalDiscord
) -> None:
    app, failures = quick_harness(echo), 0
    receive = app.receive

    async def fail_twice(new: NewEvent) -> int | None:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise StoreUnavailable("the database cannot be reached: it is down on purpose")
        return await receive(new)

    app.receive = fail_twice  # type: ignore[method-assign]
    async with running(app, settings):
        await discord.mention("one")
        await discord.mention("two")
        texts = [reply["content"] for reply in await discord.replies(count=2)]
    assert texts == ["you said one", "you said two"]
