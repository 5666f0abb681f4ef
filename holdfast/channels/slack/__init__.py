"""Slack: mentions and direct messages in, replies in their threads out, for one workspace or several."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.channel import Part, Put, Undeliverable, part_key
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.gate import Shared
from holdfast.channels.slack.mrkdwn import mrkdwn
from holdfast.channels.slack.place import Place, place_of
from holdfast.channels.slack.workspace import Workspace
from holdfast.channels.split import split
from holdfast.event import Event, Payload

LONGEST = 4000
NO_ANSWER = "(no answer)"
EVENT_TYPE = "holdfast_part"
PAGE = 200


class SlackChannel:
    """Every workspace that was named; a response finds its own by the team in its conversation."""

    name = "slack"

    def __init__(self, accesses: Sequence[Access], *, files: Path | None = None, shared: Shared | None = None) -> None:
        self.workspaces = [Workspace(access, shared) for access in accesses]
        self._files = files

    async def run(self, put: Put) -> None:
        async with asyncio.TaskGroup() as group:
            for workspace in self.workspaces:
                group.create_task(workspace.run(put))

    def split(self, response: Event) -> Sequence[Part]:
        files = [str(path) for path in response.event.get("files") or ()]
        texts = split(mrkdwn(str(response.event.get("message") or "")), LONGEST)
        texts = texts or ([] if files else [NO_ANSWER])
        parts = [Part(part_key(response, number), text) for number, text in enumerate(texts)]
        return parts + [Part(part_key(response, len(texts) + number), file=file) for number, file in enumerate(files)]

    async def prepare(self, response: Event, part: Part) -> Payload:
        return {}

    async def post(self, response: Event, part: Part, note: Payload) -> Payload:
        place, workspace = await self._place(response)
        metadata = {"event_type": EVENT_TYPE, "event_payload": {"key": part.key}}
        answer = await workspace.call(
            "chat.postMessage",
            channel=place.channel,
            text=part.text,
            thread_ts=place.thread_ts,
            metadata=metadata,
            unfurl_links=False,
        )
        return {"channel": answer["channel"], "ts": answer["ts"]}

    async def find(self, response: Event, part: Part, note: Payload) -> Payload | None:
        place, workspace = await self._place(response)
        method = "conversations.replies" if place.thread_ts else "conversations.history"
        where = {"ts": place.thread_ts} if place.thread_ts else {}
        cursor = ""
        while True:
            answer = await workspace.call(
                method,
                channel=place.channel,
                oldest=place.after,
                include_all_metadata=True,
                limit=PAGE,
                cursor=cursor or None,
                **where,
            )
            for message in answer["messages"]:
                if message.get("metadata", {}).get("event_payload", {}).get("key") == part.key:
                    return {"channel": place.channel, "ts": message["ts"]}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return None

    async def _place(self, response: Event) -> tuple[Place, Workspace]:
        place = place_of(response.event)
        return place, await self._workspace(place)

    async def _workspace(self, place: Place) -> Workspace:
        if len(self.workspaces) == 1:
            return self.workspaces[0]
        for workspace in self.workspaces:
            if (await workspace.ready()).team == place.team:
                return workspace
        raise Undeliverable("team_not_found", f"there is no token for the workspace {place.team}")
