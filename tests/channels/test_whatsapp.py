"""WhatsApp: signed webhooks in, the Cloud API out, and a clear outcome for every refusal."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.function import Function
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.whatsapp import access
from holdfast.channels.whatsapp.access import Limits, access_of
from holdfast.channels.whatsapp.check import check
from holdfast.channels.whatsapp.markup import whatsapp_text
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.whatsapp import WhatsApp
from holdfast.store.pairing import open_pairings
from holdfast.telemetry import CHANNEL_REFUSED
from holdfast.testing.whatsapp import ADA, BOB, NUMBER, VERIFY_TOKEN, FakeWhatsApp, sign, webhook
from tests.api.serving import ask_json, serving
from tests.channels.platforms import undelivered
from tests.channels.whatsapp_fixtures import SOON, whatsapp
from tests.steps import both_engines, finished, quick_harness, until

__all__ = ["whatsapp"]

TEXT = {"from": ADA, "id": "wamid.X", "timestamp": "1", "type": "text", "text": {"body": "hi"}}
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url, pairing="open")


@asynccontextmanager
async def answering(
    agent: Function, settings: Settings, whatsapp: FakeWhatsApp
) -> AsyncIterator[AgentHarness]:
    app = quick_harness(agent, settings=settings)
    async with serving(app) as port:
        whatsapp.webhook_url = f"http://127.0.0.1:{port}/whatsapp/webhook"
        yield app


@both_engines
async def test_a_message_is_answered_once_though_its_webhook_comes_again(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    whatsapp.faults.lose_acks = 2
    async with answering(echo, settings, whatsapp) as app:
        message = await whatsapp.say("hello")
        await whatsapp.say("again")
        assert await whatsapp.answers(2) == ["you said hello", "you said again"]
        ended = await finished(app.store, 2, queue="inbox")
    assert ended[0].message_id == f"whatsapp_{NUMBER}_{ADA}_{message}"
    assert ended[0].event["conversation"] == f"whatsapp:{ADA}"
    assert (ended[0].event["sender"], ended[0].event["sender_id"]) == ("Ada", ADA)
    assert whatsapp.messages_to()[0]["context"] == {"message_id": message}


@on_sqlite
async def test_meta_can_verify_the_webhook_with_the_verify_token_alone(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    right = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "{12}"}
    async with answering(echo, settings, whatsapp), httpx.AsyncClient() as client:
        answer = await client.get(whatsapp.webhook_url, params=right)
        assert (answer.status_code, answer.text) == (200, "{12}")
        assert answer.headers["content-type"].startswith("text/plain")
        for wrong in ({"hub.verify_token": "x"}, {"hub.mode": "x"}, {"hub.verify_token": ""}):
            assert (await client.get(whatsapp.webhook_url, params=right | wrong)).status_code == 403
        assert (await client.get(whatsapp.webhook_url)).status_code == 403


MALFORMED = [
    {},
    {"object": "page"},
    {"object": "whatsapp_business_account", "entry": 5},
    {"object": "whatsapp_business_account", "entry": [5, {"changes": [{"field": "messages"}]}]},
    webhook([{"from": 5, "id": [], "timestamp": {}, "type": {}}]),
    webhook([{"from": ADA, "id": "wamid.1", "timestamp": "x", "type": "text", "text": {}}]),
    webhook([{"from": ADA, "id": "wamid.2", "timestamp": "1" * 40, "type": "text"}]),
    webhook([{"from": ADA, "id": "wamid.3", "timestamp": "1", "type": "reaction", "reaction": {}}]),
    webhook([], statuses=[{"status": "failed", "errors": "x", "id": 5}]),
]


@on_sqlite
async def test_unsigned_requests_are_refused_and_malformed_ones_are_no_error_of_ours(
    whatsapp: FakeWhatsApp, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    now = str(int(time.time()))
    message = {
        "from": ADA,
        "id": "wamid.9",
        "timestamp": now,
        "type": "text",
        "text": {"body": "x"},
    }
    good = json.dumps(webhook([message]))
    async with (
        answering(echo, settings, whatsapp) as app,
        httpx.AsyncClient(timeout=30) as client,
    ):
        wrong: list[dict[str, str]] = [
            {},
            sign(good, "other secret"),
            sign("another body"),
            {"x-hub-signature-256": "sha256="},
            {"x-hub-signature-256": "sha1=5"},
        ]
        for headers in wrong:
            answer = await client.post(whatsapp.webhook_url, content=good, headers=headers)
            assert answer.status_code == 401
        for text in (b"", b"x", b"[]", b"5", b"[" * 100_000, b"\xff\xfe"):
            answer = await client.post(whatsapp.webhook_url, content=text, headers=sign(text))
            assert answer.status_code == 400, text[:20]
        for body in MALFORMED:
            text = json.dumps(body).encode()
            answer = await client.post(whatsapp.webhook_url, content=text, headers=sign(text))
            assert answer.status_code == 200, text
        assert await app.store.counts() == []
    assert "Traceback" not in caplog.text


@on_sqlite
async def test_a_recorded_request_cannot_be_replayed(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    def message(age: timedelta) -> dict[str, object]:
        at = str(int(time.time() - age.total_seconds()))
        text = {"type": "text", "text": {"body": "hello"}}
        return webhook([{"from": ADA, "id": f"wamid.{age.days}", "timestamp": at, **text}])

    async with answering(echo, settings, whatsapp) as app:
        for _ in range(2):
            await whatsapp.deliver(message(timedelta(days=6)))
        # The ids of older messages are forgotten, so they are not taken at all.
        await whatsapp.deliver(message(timedelta(days=8)))
        assert await whatsapp.answers(1) == ["you said hello"]
        await finished(app.store, queue="outbox")
        assert await app.store.counts() == []


@on_sqlite
async def test_a_closed_24_hour_window_is_a_clear_dead_letter_at_once_or_later(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    whatsapp.closed.add(ADA)
    async with answering(echo, settings, whatsapp) as app:
        await whatsapp.say("hello")
        [ended] = await finished(app.store, queue="outbox")
        assert (ended.last_error or "").startswith("131047 more than 24 hours have passed")
        # WhatsApp may also accept a message and report its failure by webhook.
        error = {"code": 131047, "title": "Re-engagement message"}
        status = {"id": "wamid.OUT1", "status": "failed", "recipient_id": BOB, "errors": [error]}
        delivered = {"id": "wamid.OUT2", "status": "delivered", "recipient_id": BOB}
        for _ in range(2):
            await whatsapp.deliver(webhook([], statuses=[delivered, status]))
        await finished(app.store, 2, queue="outbox")
        assert await undelivered(app) == [("dead", "131047")] * 2


@on_sqlite
async def test_a_long_answer_is_split_and_a_refused_one_is_a_dead_letter_with_its_code(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        return "\n\n".join(sign * 3000 for sign in "abc")

    async with answering(answer, settings, whatsapp) as app:
        await whatsapp.say("go on")
        assert "\n\n".join(await whatsapp.answers(3)) == "\n\n".join(s * 3000 for s in "abc")
        whatsapp.faults.plan("send", "error", code="131026", status=400)
        await whatsapp.say("again")
        await finished(app.store, 2, queue="outbox")
        assert await undelivered(app) == [("dead", "131026")]


@on_sqlite
@pytest.mark.parametrize("code", ["130429", "80007"])
async def test_rate_limits_are_obeyed_without_using_an_attempt(
    whatsapp: FakeWhatsApp, settings: Settings, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LIMITS", Limits(rate_limit_delay=SOON))

    whatsapp.faults.plan("send", "error", code=code, status=400, times=2)
    async with answering(echo, settings, whatsapp) as app:
        await whatsapp.say("hello")
        assert await whatsapp.answers(1) == ["you said hello"]
        [ended] = await finished(app.store, queue="outbox")
    assert ended.attempts == 1


@on_sqlite
@pytest.mark.parametrize(("code", "others_wait"), [("130429", True), ("131056", False)])
async def test_a_rate_limit_of_the_number_lets_all_wait_and_that_of_a_person_nobody_else(
    whatsapp: FakeWhatsApp,
    settings: Settings,
    code: str,
    others_wait: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "LIMITS", Limits(rate_limit_delay=timedelta(seconds=3)))
    whatsapp.faults.plan("send", "error", code=code, status=400)
    async with answering(echo, settings, whatsapp):
        await whatsapp.say("hello")
        await whatsapp.until(lambda: whatsapp.faults.calls["send"] == 1)
        refused_at = time.time()
        await whatsapp.say("me, too", user=BOB)
        await whatsapp.answers(1, BOB)
        await whatsapp.answers(1)
    [other] = whatsapp.messages_to(BOB)
    has_waited = whatsapp.taken_at[other["id"]] - refused_at > 2
    assert has_waited if others_wait else whatsapp.sent[0] == other


@on_sqlite
async def test_several_numbers_answer_each_in_its_own_conversation(
    whatsapp: FakeWhatsApp, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeWhatsApp(number="400500600") as second:
        for name, value in second.variables.items():
            monkeypatch.setenv(f"SECOND_{name}", value)
        table = WhatsApp(
            token_variable="SECOND_WHATSAPP_TOKEN",
            phone_number_id_variable="SECOND_WHATSAPP_PHONE_NUMBER_ID",
            app_secret_variable="SECOND_WHATSAPP_APP_SECRET",
            api_url=second.api_url,
        )
        both = settings.model_copy(update={"channels": Channels(whatsapp=(WhatsApp(), table))})
        async with answering(echo, both, whatsapp) as app:
            second.webhook_url = whatsapp.webhook_url
            await whatsapp.say("one")
            await second.say("two")
            assert await whatsapp.answers(1) == ["you said one"]
            assert await second.answers(1) == ["you said two"]
            # A message that the secret of one number signs for the other one is not taken.
            forged = webhook([TEXT], number=second.number)
            assert await whatsapp.post_webhook(json.dumps(forged)) == 200
            ended = await finished(app.store, 2, queue="inbox")
    conversations = [one.event["conversation"] for one in ended]
    assert conversations == [f"whatsapp:{NUMBER}@{ADA}", f"whatsapp:{second.number}@{ADA}"]


@on_sqlite
async def test_a_refused_token_is_named_and_responses_wait(
    whatsapp: FakeWhatsApp, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering(echo, settings, whatsapp) as app:
        whatsapp.token = "replaced"
        await whatsapp.say("hello")
        [problem] = await until(lambda: app.channels["whatsapp"].problems)
        assert problem.startswith("WHATSAPP_TOKEN: WhatsApp refuses the token")
        port = int(whatsapp.webhook_url.split(":")[2].split("/")[0])
        status, answer = await ask_json(port, "/readyz")
        assert (status, answer["whatsapp"]) == (200, problem)
        await whatsapp.until(lambda: whatsapp.faults.calls["messages"] > 3)
        [line] = await check(access_of(WhatsApp(), "open"))
        assert (line.state, "refuses the token" in line.detail) == ("fail", True)
        whatsapp.token = whatsapp.variables["WHATSAPP_TOKEN"]
        assert await whatsapp.answers(1) == ["you said hello"]
        [ended] = await finished(app.store, queue="outbox")
        assert app.channels["whatsapp"].problems == []
        lines = await check(access_of(WhatsApp(), "open"))
        assert [line.state for line in lines] == ["ok", "ok"]
    assert ended.attempts == 1
    assert caplog.text.count(CHANNEL_REFUSED) == 1


@on_sqlite
async def test_files_come_in_for_known_senders_and_go_out(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    async def answer(turn: Turn) -> Reply:
        [path] = await turn.files()
        return Reply(f"{turn.text} {path.read_bytes().decode()}", files=[str(path)])

    async with answering(answer, settings, whatsapp):
        await whatsapp.send_file("image", b"picture", caption="look")
        assert (await whatsapp.answers(2))[0] == "look picture"
        await whatsapp.send_file("document", b"text", name="../a b.txt")
        assert (await whatsapp.answers(4))[2] == "text"
    picture, document = (whatsapp.messages_to()[number] for number in (1, 3))
    assert whatsapp.media[picture["image"]["id"]][1] == b"picture"
    assert document["document"]["filename"].endswith("a b.txt")
    assert whatsapp.media[document["document"]["id"]][1] == b"text"


@on_sqlite
async def test_a_stranger_gets_a_code_and_no_media_is_fetched(
    whatsapp: FakeWhatsApp, settings: Settings
) -> None:
    by_code = settings.model_copy(update={"pairing": "code"})
    async with answering(echo, by_code, whatsapp) as app:
        await whatsapp.send_file("image", b"picture", caption="hello")
        [notice] = await whatsapp.answers(1)
        [request] = await open_pairings(app.store).requests()
        assert request.code is not None
        assert request.code in notice
        await open_pairings(app.store).approve(request.code)
        await whatsapp.say("now")
        assert await whatsapp.answers(2) == [notice, "you said now"]
    assert whatsapp.faults.calls["media_url"] == 0


def test_markdown_becomes_whatsapps_markup() -> None:
    text = "# Head\n**bold** and ~~old~~ `**code**` [a](https://b.org/c)\n```python\n**x**\n```"
    assert whatsapp_text(text) == (
        "*Head*\n*bold* and ~old~ `**code**` a (https://b.org/c)\n```\n**x**\n```"
    )
