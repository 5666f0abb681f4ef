"""The app manifest, which is pasted when the app is created in Slack."""

from __future__ import annotations

from typing import Any

CUSTOMIZE_SCOPE = "chat:write.customize"
"""Lets members of a team post under their own names and icons. Everything else works without it."""
BOT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    CUSTOMIZE_SCOPE,
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:write",
    "users:read",
)
BOT_EVENTS = ("app_mention", "message.im")


def manifest(name: str, request_url: str | None = None) -> dict[str, Any]:
    """Build the manifest.

    With a request URL, events and presses of buttons come there by HTTP; else by Socket Mode."""
    url = {} if request_url is None else {"request_url": request_url}
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {
            "name": name,
            "description": "Answers when it is mentioned or written to",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {**url, "bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True, **url},
            "org_deploy_enabled": False,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": False,
        },
    }
