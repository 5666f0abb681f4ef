"""Reading events and errors, and writing HTML, without a server."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.channels.matrix.errors import AccessDenied, Refusal, Unreachable, translate_error
from holdfast.channels.matrix.html import LONGEST_PART, edit_content, text_content, to_html
from holdfast.channels.matrix.incoming import (
    Bot,
    Location,
    is_message,
    location_of,
    text_of_content,
    with_edits,
    without_answered,
)
from tests.growth import superlinear

BOT = Bot("@bot:example.org", "Robot")


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (403, {"errcode": "M_FORBIDDEN", "error": "no"}, Undeliverable, "M_FORBIDDEN"),
        (404, {"errcode": "M_NOT_FOUND"}, Undeliverable, "M_NOT_FOUND"),
        (413, {"errcode": "M_TOO_LARGE"}, Undeliverable, "M_TOO_LARGE"),
        (401, {"errcode": "M_UNKNOWN_TOKEN"}, AccessDenied, None),
        (400, {"errcode": "M_UNKNOWN"}, Refusal, "M_UNKNOWN"),
        (500, {}, Refusal, "status_500"),
        (502, {}, Unreachable, None),
    ],
)
def test_errors_are_permanent_or_pass(
    status: int, body: dict[str, str], kind: type[Exception], code: str | None
) -> None:
    error = translate_error(status, body, None)
    assert type(error) is kind
    assert getattr(error, "code", None) == code


@pytest.mark.parametrize(
    ("body", "header", "seconds"),
    [
        ({"retry_after_ms": 2500}, None, 2.5),
        ({"retry_after_ms": 2500}, "7", 7),
        ({}, None, 5),
        ({"retry_after_ms": "nan"}, None, 5),
        ({"retry_after_ms": -1}, None, 5),
        ({"retry_after_ms": 10**30}, None, 3600),
        ({}, "tomorrow", 5),
    ],
)
def test_a_rate_limit_says_how_long_to_wait(
    body: dict[str, object], header: str | None, seconds: float
) -> None:
    error = translate_error(429, {"errcode": "M_LIMIT_EXCEEDED", **body}, header)
    assert isinstance(error, NotNow)
    assert error.delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("@bot:example.org hello", "hello"),
        ("@bot:example.org: hello", "hello"),
        ("hello @bot:example.org", "hello"),
        ("Robot: hello", "hello"),
        ("@robot, hello", "hello"),
        ("Robots are nice", "Robots are nice"),
        ("Robot: @coder fix it", "@coder fix it"),
        ("ask the robot", "ask the robot"),
        ("Robot", ""),
    ],
)
def test_a_text_comes_without_the_mention(text: str, rest: str) -> None:
    assert BOT.text_without_mention(text) == rest


def test_a_list_of_mentions_decides_and_without_one_the_text() -> None:
    assert BOT.is_mentioned({"body": "hi", "m.mentions": {"user_ids": [BOT.user]}})
    assert not BOT.is_mentioned({"body": "hi Robot", "m.mentions": {}})
    assert BOT.is_mentioned({"body": "hi Robot!"})
    assert BOT.is_mentioned(
        {"body": "hi", "formatted_body": f'<a href="https://matrix.to/#/{BOT.user}">'}
    )
    assert not BOT.is_mentioned({"body": "Robotic", "m.mentions": None})
    assert not BOT.is_mentioned({"body": 7, "m.mentions": {"user_ids": "x"}})


def test_a_place_is_read_from_conversation_and_message_id() -> None:
    room, root = "!a_b:example.org", "$c_d-e"
    message = f"matrix_@b_o.t:example.org_{room}_$f_g"
    payload = {"conversation": f"matrix:{room}:{root}", "message_id": message}
    assert location_of(payload) == Location(room, root, "@b_o.t:example.org", "$f_g")
    assert location_of({"conversation": f"matrix:{room}"}) == Location(room)
    assert location_of({"conversation": "slack:C1"}) is None
    assert Location(room, root).conversation == payload["conversation"]


def test_only_the_edit_of_the_sender_counts() -> None:
    def edit(sender: str, text: str) -> dict[str, object]:
        relation = {"rel_type": "m.replace", "event_id": "$1"}
        content = {"msgtype": "m.text", "m.relates_to": relation, "m.new_content": {"body": text}}
        return {"type": "m.room.message", "sender": sender, "event_id": "$2", "content": content}

    content = {"msgtype": "m.text", "body": "first"}
    first = {"type": "m.room.message", "sender": "@a:x", "event_id": "$1", "content": content}
    [read, *edits] = with_edits([first, edit("@a:x", "edited"), edit("@m:x", "forged")])
    assert text_of_content(read["content"]) == "edited"
    assert [is_message(one) for one in (read, *edits)] == [True, False, False]


def test_messages_that_another_person_has_answered_can_be_left_out() -> None:
    def room_event(number: int, sender: str, **relation: object) -> dict[str, object]:
        content = {"msgtype": "m.text", "body": "x", "m.relates_to": relation}
        kind = "m.room.message"
        return {"type": kind, "sender": sender, "event_id": f"${number}", "content": content}

    def threaded(number: int, sender: str, root: str) -> dict[str, object]:
        fallback = {"is_falling_back": True, "m.in_reply_to": {"event_id": "$9"}}
        return room_event(number, sender, rel_type="m.thread", event_id=root, **fallback)

    reply = {"m.in_reply_to": {"event_id": "$2"}}
    events = [
        room_event(1, "@ada:x"),  # answered in the thread of 4
        room_event(2, "@ada:x"),  # answered by the reply 5
        room_event(3, "@ada:x"),  # its sender alone goes on in its thread
        threaded(4, "@grace:x", "$1"),
        room_event(5, "@grace:x", **reply),
        threaded(6, "@ada:x", "$3"),
        threaded(7, "@ada:x", "$8"),  # answered by 10
        room_event(9, "@ada:x"),  # only the bot has answered
        threaded(10, "@grace:x", "$8"),
        threaded(11, BOT.user, "$9"),
    ]
    kept = [one["event_id"] for one in without_answered(events, BOT.user)]
    assert kept == ["$3", "$4", "$5", "$6", "$9", "$10", "$11"]


def test_the_quotation_of_a_reply_is_left_out() -> None:
    relation = {"m.in_reply_to": {"event_id": "$1"}}
    body = "> <@a:x> one\n> two\n\nthe answer\n> kept"
    content = {"msgtype": "m.text", "body": body, "m.relates_to": relation}
    assert text_of_content(content) == "the answer\n> kept"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain & <simple>", None),
        ("**bold**", "<strong>bold</strong>"),
        ("<script>x</script> *a*", "&lt;script&gt;x&lt;/script&gt; <em>a</em>"),
        ("[a](javascript:alert(1)) *b*", "[a](javascript:alert(1)) <em>b</em>"),
        ("![i](https://x.org/i.png)", '!<a href="https://x.org/i.png">i</a>'),
    ],
)
def test_markdown_becomes_safe_html(text: str, html: str | None) -> None:
    content = text_content(text)
    assert content["body"] == text
    assert content.get("formatted_body") == html


@pytest.mark.parametrize("sign", ["*a_ ", "[", "![", "](", "`a``b", "|a", "<", "\\", "> ", "_a*b"])
def test_the_cost_of_html_is_linear(sign: str) -> None:
    assert superlinear(to_html, lambda length: (sign * length)[:length]) == ""


def test_an_event_stays_below_the_size_that_a_homeserver_takes() -> None:
    for sign in ("😀", "&", "`a`", "\x01"):
        text = (sign * LONGEST_PART)[:LONGEST_PART]
        for content in (text_content(text), edit_content("$1", text)):
            assert len(str(content).encode(errors="replace")) < 65_000
