"""Texts: which events are messages, Markdown as mrkdwn, and long texts in parts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.channels.base import Undeliverable
from holdfast.channels.slack.incoming import (
    Bot,
    Permissions,
    message_of,
    platform_time,
    text_without_mention,
)
from holdfast.channels.slack.mrkdwn import mrkdwn
from holdfast.channels.slack.post import Destination, destination_of
from holdfast.channels.split import split
from tests.growth import superlinear

BOT = Bot("T1", "UBOT", "B1")
MENTION = {
    "type": "app_mention",
    "user": "U1",
    "text": "<@UBOT> hi",
    "team": "T1",
    "channel": "C1",
    "ts": "1.000200",
}


@pytest.fixture(autouse=True)
def slack_in_the_environment() -> None:
    """Set nothing: these tests need no Slack."""


def accepted_id(permissions: Permissions | None = None, /, **changed: Any) -> str | None:
    event = {name: value for name, value in {**MENTION, **changed}.items() if value is not None}
    new = message_of(
        {"type": "event_callback", "team_id": "T9", "event": event},
        BOT,
        permissions or Permissions(),
    )
    return None if new is None else new.message_id


def test_a_mention_and_the_message_that_it_is_have_one_id() -> None:
    assert accepted_id() == "slack_T1_C1_1.000200"
    assert accepted_id(type="message", channel_type="channel") == "slack_T1_C1_1.000200"
    assert accepted_id(team=None) == "slack_T9_C1_1.000200"


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "message", "text": "hi all"},
        {"type": "message", "subtype": "message_changed"},
        {"type": "message", "subtype": "message_deleted", "channel_type": "im"},
        {"type": "reaction_added"},
        {"user": "UBOT"},
        {"bot_id": "B1"},
        {"bot_id": "B2"},
        {"user": "USLACKBOT", "type": "message", "channel_type": "im"},
        {"ts": None},
        {"channel": None},
        {"channel": "C" * 3000},
        {"thread_ts": "1" * 3000},
    ],
)
def test_messages_to_others_are_ignored(changed: dict[str, Any]) -> None:
    assert accepted_id(**changed) is None


def test_mentions_without_text_or_with_files_are_accepted() -> None:
    assert accepted_id(text=None)
    assert accepted_id(text="")
    assert accepted_id(
        type="message", channel_type="im", subtype="file_share", text="", files=[{"id": "F1"}]
    )


def test_allow_and_deny_lists_decide_whose_messages_are_accepted() -> None:
    assert accepted_id(Permissions(allow_users=frozenset({"U2"}))) is None
    assert accepted_id(Permissions(allow_users=frozenset({"U1"})))
    assert (
        accepted_id(Permissions(deny_users=frozenset({"U1"}), allow_users=frozenset({"U1"})))
        is None
    )
    assert accepted_id(Permissions(allow_channels=frozenset({"C2"}))) is None
    assert accepted_id(Permissions(deny_channels=frozenset({"C1"}))) is None
    assert accepted_id(Permissions(bots=True), bot_id="B2", user=None)
    assert accepted_id(Permissions(bots=True), bot_id="B1") is None


@pytest.mark.parametrize("name", ["user_team", "source_team", "team"])
def test_issue_13_13_people_of_other_companies_are_not_answered_unless_it_is_set(
    name: str,
) -> None:
    assert accepted_id(None, **{name: "T2"}) is None
    assert accepted_id(Permissions(external=True), **{name: "T2"})
    assert (
        accepted_id(Permissions(external=True, deny_users=frozenset({"U1"})), **{name: "T2"})
        is None
    )
    assert accepted_id(None, **{name: "T1"})


def test_a_sender_of_no_known_team_is_external_in_a_shared_channel_alone() -> None:
    event = {name: value for name, value in MENTION.items() if name != "team"}
    body = {"type": "event_callback", "team_id": "T1", "event": event}
    assert message_of(body, BOT, Permissions()) is not None
    shared = body | {"is_ext_shared_channel": True}
    assert message_of(shared, BOT, Permissions()) is None
    assert message_of(shared, BOT, Permissions(external=True)) is not None
    assert message_of(shared | {"event": MENTION}, BOT, Permissions()) is not None, "one of our own"


def test_times_are_exact_to_the_microsecond() -> None:
    assert platform_time("1767225600.000200") == datetime(2026, 1, 1, 0, 0, 0, 200, tzinfo=UTC)
    assert platform_time(1767225600) == datetime(2026, 1, 1, tzinfo=UTC)
    assert [platform_time(value) for value in (None, "x", "1e99", "nan", "inf")] == [None] * 5


def test_the_name_of_the_bot_is_not_part_of_the_text() -> None:
    assert text_without_mention(BOT, "<@UBOT> hi") == "hi"
    assert text_without_mention(BOT, "hi <@UBOT|bot>, and <@U2>\nmore") == "hi and <@U2>\nmore"
    assert text_without_mention(BOT, "<@UBOTHER> hi") == "<@UBOTHER> hi"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** and *italic* and ***both***", "*bold* and _italic_ and *_both_*"),
        ("__bold__ and _italic_ and ~~gone~~", "*bold* and _italic_ and ~gone~"),
        ("# Title **x**\ntext", "*Title x*\ntext"),
        ("- one\n* two\n  + three\n1. four", "• one\n• two\n  • three\n1. four"),
        ("[site](https://a.b/c?d=1&e=2)", "<https://a.b/c?d=1&amp;e=2|site>"),
        ("![picture](https://a.b/c_(d).png)", "<https://a.b/c_(d).png|picture>"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("> quoted <b>", "> quoted &lt;b&gt;"),
        ("`**x** < y` stays", "`**x** &lt; y` stays"),
        ("```\na = **b** # c\n- d\n```\n**after**", "```\na = **b** # c\n- d\n```\n*after*"),
        ("```\nnever closed **x**", "```\nnever closed **x**"),
        ("hello <@U1>, see <#C1> and <https://a.b>", "hello <@U1>, see <#C1> and <https://a.b>"),
        ("<!channel> look", "&lt;!channel&gt; look"),
        ("2*3*4 and snake_case_name and a ** b", "2*3*4 and snake_case_name and a ** b"),
        ("**use `x` now**", "*use `x` now*"),
        ("", ""),
    ],
)
def test_markdown_as_slack_shows_it(markdown: str, shown: str) -> None:
    assert mrkdwn(markdown) == shown


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("[use `x` now](https://a.b)", "<https://a.b|use `x` now>"),
        ("[`a]b`](https://a.b) and `c`", "<https://a.b|`a]b`> and `c`"),
        ("`0` [`1` `2`](https://a.b) `3` [4](https://c.d) `5`", None),
        ("**[`x`](https://a.b)**", "*<https://a.b|`x`>*"),
    ],
)
def test_links_may_hold_code(markdown: str, shown: str | None) -> None:
    expected = "`0` <https://a.b|`1` `2`> `3` <https://c.d|4> `5`" if shown is None else shown
    assert mrkdwn(markdown) == expected


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "`\ue0010\ue002`",
        "\ue0017\ue002",
        "\ue001123",
        "`\ufdd1`",
        "\ufdd1 `a` \ufdd1",
        "[\ufdd1](https://a.b)",
    ],
)
def test_issue_13_1_a_text_with_marker_characters_does_not_hang(text: str) -> None:
    assert mrkdwn(text).replace("\ufdd1", "")
    assert mrkdwn(mrkdwn(text))


MARKS = "xy *_`~[]()<>&#\n-|:!\\\ue000\ue001\ue0020179\ufdd0\ufdd1"


@pytest.mark.timeout(60)
@given(st.text(alphabet=MARKS, max_size=300) | st.text(max_size=300))
def test_issue_13_1_any_text_can_be_shown(text: str) -> None:
    shown = mrkdwn(text)
    if "```" not in text:
        assert [sign for sign in shown if sign in "xy"] == [sign for sign in text if sign in "xy"]
    if "`" not in text:
        assert "\ufdd0" not in shown
        assert "\ufdd1" not in shown


def test_issue_14_33_the_language_of_a_fence_is_not_a_line_of_code() -> None:
    assert (
        mrkdwn("```python\nx = 1\n```\nand\n```js title=a\ny()\n```")
        == "```\nx = 1\n```\nand\n```\ny()\n```"
    )
    assert mrkdwn("```x``` and **bold**") == "```x``` and *bold*"


def test_issue_14_33_a_table_is_aligned_text() -> None:
    table = (
        "**Costs**\n\n| item | price |\n|:---|---:|\n| **tea** | 3 |\n| a \\| b | 12.50 |\n\n"
        "after *all*"
    )
    shown = (
        "*Costs*\n\n```\nitem   price\n-----  -----\ntea        3\na | b  12.50\n```\n\nafter _all_"
    )
    assert mrkdwn(table) == shown
    assert mrkdwn("a | b\n--|--\n1 | 2 | 3\n4") == "```\na  b\n-  -----\n1  2 | 3\n```\n4"
    assert mrkdwn("|名|x|\n|-|-|\n|a|b|") == "```\n名  x\n--  -\na   b\n```"


def test_a_text_that_is_no_table_stays() -> None:
    for text in ("a | b", "a | b\n| c", "a | b\n---", "```\n| a | b |\n|---|---|\n```", "x\n|--|"):
        assert mrkdwn(text) == text


def test_a_table_that_alignment_would_blow_up_stays_as_it_is() -> None:
    hostile = (
        "|a" * 20
        + "\n"
        + "|-" * 20
        + "\n"
        + "|" * 19
        + "x" * 60
        + "\n"
        + ("|" * 19 + "y\n") * 20_000
    )
    assert len(mrkdwn(hostile)) < 6 * len(hostile)


@given(
    st.lists(
        st.sampled_from(
            [*MARKS, "**", "__", "~~", "](https://a.b)", "# ", "**x", "&gt;", "|", "|-|\n"]
        ),
        min_size=1,
    )
)
@settings(max_examples=60, deadline=None)
def test_issue_13_1_conversion_is_linear_in_any_text(tokens: list[str]) -> None:
    unit = "".join(tokens)
    assert superlinear(mrkdwn, lambda size: unit * (size // len(unit) + 1)) == ""


@given(st.text(alphabet="ab <&;>\n`", max_size=2000), st.integers(20, 100))
def test_parts_keep_to_the_limit_and_lose_nothing(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    assert [sign for part in parts for sign in part if sign in "ab"] == [
        sign for sign in text if sign in "ab"
    ]


def test_a_text_is_cut_where_it_hurts_least() -> None:
    assert split("one\n\ntwo", 100) == ["one\n\ntwo"]
    assert split("a" * 30 + "\n\n" + "b" * 30, 50) == ["a" * 30, "b" * 30]
    assert split("a" * 30 + "\n" + "b" * 30, 50) == ["a" * 30, "b" * 30]
    assert split("word " * 20, 50)[0].endswith("word ")
    assert split("", 50) == []


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    parts = split(f"before\n```python\n{code}\n```\nafter", 80)
    assert len(parts) > 2
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert all(part.startswith("```python\n") for part in parts[1:-1])
    assert "".join(parts).count("line ") == 20


@pytest.mark.parametrize(
    ("response", "destination"),
    [
        (("slack:T1:C1:1.2", "slack_T1_C1_1.2"), Destination("T1", "C1", "1.2", "1.2")),
        (("slack:T1:C1:1.2", "slack_T1_C1_3.4"), Destination("T1", "C1", "1.2", "3.4")),
        (("slack:C1:1.2", "slack_T1_C1_1.2"), Destination("T1", "C1", "1.2", "1.2")),
        (("slack:T1:D1:1.2", "slack_T1_D1_1.2"), Destination("T1", "D1", None, "1.2")),
        (("slack:T1:D1:1.2", "slack_T1_D1_1.2/1"), Destination("T1", "D1", None, "1.2")),
        (("slack:T1:D1:1.2", "slack_T1_D1_3.4"), Destination("T1", "D1", "1.2", "3.4")),
        (("slack:U123", "proactive_x"), Destination(None, "U123", None, None)),
    ],
)
def test_a_response_finds_its_place_by_its_conversation(
    response: tuple[str, str], destination: Destination
) -> None:
    conversation, message_id = response
    assert destination_of({"conversation": conversation, "message_id": message_id}) == destination


def test_a_message_of_our_own_accord_names_a_channel_or_a_person() -> None:
    assert destination_of({"sender": "ada", "sender_id": "C0123"}) == Destination(None, "C0123")
    with pytest.raises(Undeliverable, match="no_address"):
        destination_of({"sender": "ada"})
