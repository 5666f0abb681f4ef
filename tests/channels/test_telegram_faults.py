"""Telegram refuses, is away, or calls us by webhook: each has a clear outcome."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.telegram import access
from holdfast.channels.telegram.access import Limits, access_of
from holdfast.channels.telegram.check import check
from holdfast.channels.watermark import Watermarks
from holdfast.errors import StoreUnavailable
from holdfast.queue.policy import Backoff
from holdfast.settings import Settings
from holdfast.settings.channels.telegram import Telegram
from holdfast.telemetry import CHANNEL_REFUSED, PLATFORM_REACHABLE, PLATFORM_UNREACHABLE
from holdfast.testing.telegram import ADA, FakeTelegram
from holdfast.testing.telegram.chats import BOT
from tests.api.serving import ask_json, serving
from tests.steps import finished, quick_harness, running, until

SOON = timedelta(milliseconds=50)


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(
        poll_within=timedelta(seconds=1),
        stand_by=SOON,
        backoff=Backoff(first=SOON, most=SOON),
        unreachable_delay=SOON,
        repair_delay=SOON,
    )
    monkeypatch.setattr(access, "LIMITS", limits)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url, pairing="open")


async def test_a_wrong_token_is_named_by_log_readyz_and_doctor_and_stops_nothing(
    telegram: FakeTelegram,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "4242:wrong")
    app = quick_harness(echo, settings=settings)
    async with serving(app) as port:
        status, answer = await ask_json(port, "/readyz")
        assert (status, answer["status"]) == (200, "ready")
        assert answer["telegram"].startswith("TELEGRAM_BOT_TOKEN: Telegram refuses the token")
        assert await app.put("hello") is not None
        await finished(app.store, queue="inbox")
        await telegram.until(lambda: telegram.faults.calls["getMe"] > 2)
    assert caplog.text.count(CHANNEL_REFUSED) == 1
    [line] = await check(access_of(Telegram(), "open"))
    assert (line.state, "401 Unauthorized" in line.detail) == ("fail", True)
    assert "wrong" not in line.detail + caplog.text


@pytest.mark.parametrize("token", ["no token", "4242:"])
async def test_a_token_that_is_none_is_a_problem(
    telegram: FakeTelegram, settings: Settings, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", token)
    async with running(quick_harness(echo), settings) as app:
        [problem] = app.channels["telegram"].problems
        assert "not the token of a Telegram bot" in problem
    [line] = await check(access_of(Telegram(), "open"))
    assert line.state == "fail"


async def test_responses_wait_while_the_token_is_revoked_and_use_no_attempt(
    telegram: FakeTelegram, settings: Settings
) -> None:
    go_on = asyncio.Event()

    async def answer(turn: object) -> str:
        await go_on.wait()
        return "done"

    async with running(quick_harness(answer), settings) as app:
        await telegram.say("hello")
        await telegram.until(lambda: telegram.confirmed)
        telegram.is_revoked = True
        go_on.set()
        channel = app.channels["telegram"]
        await until(lambda: channel.problems)
        await telegram.until(lambda: telegram.faults.calls["sendMessage"] > 1)
        telegram.is_revoked = False
        assert await telegram.answers(1) == ["done"]
        [ended] = await finished(app.store, queue="outbox")
        await until(lambda: not channel.problems)
    assert ended.attempts == 1


async def test_a_second_program_that_polls_is_named_until_it_stops(
    telegram: FakeTelegram, settings: Settings
) -> None:
    telegram.webhook_url = "http://127.0.0.1:1/elsewhere"
    async with running(quick_harness(echo), settings) as app:
        channel = app.channels["telegram"]
        [problem] = await until(lambda: channel.problems)
        assert "409 Conflict" in problem
        assert "deleteWebhook" in problem
        lines = await check(access_of(Telegram(), "open"))
        assert [line.state for line in lines] == ["ok", "fail"]
        telegram.webhook_url = ""
        await telegram.say("hello")
        assert await telegram.answers(1) == ["you said hello"]
        assert channel.problems == []


async def test_an_outage_is_logged_once_and_survived(
    telegram: FakeTelegram, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(quick_harness(echo), settings):
        await telegram.until(lambda: telegram.faults.calls["getUpdates"])
        telegram.faults.plan("getUpdates", "drop_before", times=2)
        telegram.faults.plan("getUpdates", "status", status=502)
        telegram.faults.plan("getUpdates", "error", code="400 Bad Request: fault")
        await telegram.until(lambda: telegram.faults.calls["getUpdates"] > 6)
        telegram.faults.plan("sendMessage", "drop_before")
        await telegram.say("hello")
        assert await telegram.answers(1) == ["you said hello"]
    assert caplog.text.count(PLATFORM_UNREACHABLE) == 1
    assert caplog.text.count(PLATFORM_REACHABLE) == 1


async def test_what_waited_at_telegram_is_the_last_gap(
    telegram: FakeTelegram, settings: Settings
) -> None:
    for text in ("one", "two"):
        await telegram.say(text)
    async with running(quick_harness(echo), settings) as app:
        await telegram.answers(2)
        gap = await until(lambda: Watermarks(app.store, "telegram").last_gap())
        assert gap.messages == 2
        telegram.faults.plan("getUpdates", "drop_before", times=2)
        telegram.disconnect()
        for text in ("three", "four", "five"):
            await telegram.say(text)
        await telegram.answers(5)

        async def is_newer() -> bool:
            gap = await Watermarks(app.store, "telegram").last_gap()
            return gap is not None and gap.messages == 3

        await until(is_newer)


async def test_an_update_that_fails_here_holds_up_nothing(
    telegram: FakeTelegram,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(*arguments: object) -> bool:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("holdfast.channels.telegram.receiving.edit_message", fail)
    async with running(quick_harness(echo), settings):
        message = await telegram.say("one")
        await telegram.edit(message, "two")
        await telegram.say("three")
        assert await telegram.answers(2) == ["you said one", "you said three"]
    assert "a channel could not handle an event" in caplog.text


async def test_two_processes_share_a_bot_and_one_polls(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings) as second:
        async with running(quick_harness(echo), settings) as first:
            await telegram.say("one")
            await telegram.answers(1)
            problems = [app.channels["telegram"].problems for app in (first, second)]
            assert problems == [[], []]
        await telegram.say("two")
        assert await telegram.answers(2) == ["you said one", "you said two"]
    assert telegram.faults.refused["getUpdates"] == 0


async def test_the_next_process_polls_after_the_first_one_has_ended(
    telegram: FakeTelegram, settings: Settings
) -> None:
    first = quick_harness(echo)
    async with asyncio.TaskGroup() as group:
        first.settings = settings
        await first.run(task_group=group)
        async with running(quick_harness(echo), settings):
            first.stop()
            await telegram.say("hello")
            assert await telegram.answers(1) == ["you said hello"]


@pytest.fixture
def by_webhook(telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_WEBHOOK_SECRET", telegram.webhook_secret)


@pytest.mark.usefixtures("by_webhook")
async def test_a_webhook_is_answered_after_the_commit_and_once_though_it_comes_again(
    telegram: FakeTelegram, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, failures = AgentHarness.receive, 1

    async def fail_once(app: AgentHarness, new: object) -> object:
        nonlocal failures
        failures -= 1
        if failures == 0:
            raise StoreUnavailable("the database is away")
        return await receive(app, new)  # type: ignore[arg-type]

    monkeypatch.setattr(AgentHarness, "receive", fail_once)
    app = quick_harness(echo, settings=settings)
    telegram.faults.lose_acks = 2
    async with serving(app) as port:
        telegram.webhook_url = f"http://127.0.0.1:{port}/telegram/webhook"
        await telegram.say("hello")
        await telegram.say("again")
        assert await telegram.answers(2) == ["you said hello", "you said again"]
    assert telegram.faults.calls["getUpdates"] == 0
    assert failures < -2


@pytest.mark.usefixtures("by_webhook")
async def test_webhook_requests_without_the_secret_or_that_are_no_update_are_refused(
    telegram: FakeTelegram, settings: Settings
) -> None:
    app = quick_harness(echo, settings=settings)
    message = {"message_id": 1, "date": 1, "chat": telegram.chats.chat(ADA), "text": "hello"}
    update = json.dumps({"update_id": 1, "message": message | {"from": telegram.chats.user(ADA)}})
    secret = {"x-telegram-bot-api-secret-token": telegram.webhook_secret}
    async with serving(app) as port, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/telegram/webhook"
        for headers in ({}, {"x-telegram-bot-api-secret-token": "wrong"}):
            assert (await client.post(url, content=update, headers=headers)).status_code == 401
        for body in ("", "x", "[]", "5", "[" * 100_000, "\ufeff{}"):
            answer = await client.post(url, content=body, headers=secret)
            assert answer.status_code == 400, body[:20]
        for body in ("{}", '{"message": 5}', '{"update_id": "x", "message": {"from": []}}'):
            assert (await client.post(url, content=body, headers=secret)).status_code == 200
        assert await app.store.counts() == []
        assert (await client.post(url, content=update, headers=secret)).status_code == 200
        assert await telegram.answers(1) == ["you said hello"]


@pytest.mark.usefixtures("by_webhook")
async def test_a_process_that_only_serves_http_takes_webhooks_for_others(
    telegram: FakeTelegram, settings: Settings
) -> None:
    front = AgentHarness(echo, settings=settings)
    async with serving(front, works=False) as port, running(quick_harness(echo), settings):
        telegram.webhook_url = f"http://127.0.0.1:{port}/telegram/webhook"
        await telegram.say("hello")
        assert await telegram.answers(1) == ["you said hello"]


async def test_several_bots_answer_each_in_its_own_conversation(
    telegram: FakeTelegram, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeTelegram(bot=77) as second:
        monkeypatch.setenv("SECOND_TOKEN", second.token)
        channels = settings.channels.model_copy(
            update={
                "telegram": (
                    Telegram(),
                    Telegram(token_variable="SECOND_TOKEN", api_url=second.api_url),
                )
            }
        )
        async with running(quick_harness(echo), settings, channels=channels) as app:
            await telegram.say("one")
            assert await telegram.answers(1) == ["you said one"]
            await second.say("two")
            assert await second.answers(1) == ["you said two"]
            ended = await finished(app.store, 2, queue="inbox")
    conversations = [one.event["conversation"] for one in ended]
    assert conversations == [f"telegram:{BOT}@{ADA}", f"telegram:77@{ADA}"]
