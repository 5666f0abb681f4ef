"""A Slack mention as measured programs of any environment put it; needs the standard library."""

from __future__ import annotations

from typing import Any

TEXT = "could you look at the build that failed yesterday evening and tell us what to do?"
# As Slack sends it: the text plain and in blocks.
PAYLOAD: dict[str, Any] = {
    "type": "app_mention",
    "user": "U0DNTVY1H",
    "ts": "1700000000.000100",
    "client_msg_id": "0f3c2a61-5a2c-4b5e-9d0b-5f6e8a7b9c0d",
    "text": f"<@U0LAN0Z89> {TEXT}",
    "team": "T024BE7LD",
    "blocks": [
        {
            "type": "rich_text",
            "block_id": "1rM9P",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [
                        {"type": "user", "user_id": "U0LAN0Z89"},
                        {"type": "text", "text": f" {TEXT}"},
                    ],
                }
            ],
        }
    ],
    "channel": "C0001",
    "event_ts": "1700000000.000100",
}


def conversation_of(number: int, channels: int) -> str:
    """Return the conversation of a numbered mention: a thread in one of so many channels."""
    return f"C{number % channels:04}:{1_700_000_000 + number}"
