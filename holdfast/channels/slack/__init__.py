"""Slack: mentions and direct messages in, replies in their threads out, for one workspace or several."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.channels.base import (
    Channel,
    Line,
    NotNow,
    Part,
    Put,
    Undeliverable,
    Webhook,
    part_key,
)
from holdfast.channels.slack import download, status, upload
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.gate import Shared
from holdfast.channels.slack.incoming import text_for
from holdfast.channels.slack.manifest import CUSTOMIZE_SCOPE
from holdfast.channels.slack.mrkdwn import mrkdwn, unescape
from holdfast.channels.slack.place import Place, place_of
from holdfast.channels.slack.reading import Reader, messages
from holdfast.channels.slack.refusal import NotLetIn, Refusal
from holdfast.channels.slack.workspace import Workspace
from holdfast.channels.split import split
from holdfast.message import PROFILE, Payload, text_before_routing, text_of, written_of
from holdfast.queue.event import Event
from holdfast.telemetry import SLACK_CUSTOMIZE_REFUSED, SLACK_LOOKUP_FAILED, SLACK_WORKSPACE_REFUSED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LONGEST = 4000
NO_ANSWER = "(no answer)"
EVENT_TYPE = "holdfast_part"
EARLIER = timedelta(minutes=10)
SIGNING_IN = timedelta(seconds=1)
MENDED_AFTER = timedelta(minutes=1)
CANNOT_TELL = (
    "missing_scope",
    "not_allowed_token_type",
    "status_404",
    "status_405",
    "unknown_method",
)
"""Slack's words where it will never tell: better a part twice than not at all, and a turn without its thread."""
LET_GO_WITHIN = 2.0
"""Seconds that signs of work get to be taken away at a stop."""


class SlackChannel(Channel):
    """Every workspace that was named; a response finds its own by the team in its conversation."""

    name = "slack"
    notifies_senders = True

    def __init__(
        self, accesses: Sequence[Access], *, files: Path | None = None, shared: Shared | None = None
    ) -> None:
        self.workspaces = [Workspace(access, shared) for access in accesses]
        self._readers = {workspace: Reader(workspace) for workspace in self.workspaces}
        self._files = files
        self._group: asyncio.TaskGroup | None = None
        self._running: Sequence[Workspace] = self.workspaces
        self._chores: set[asyncio.Task[None]] = set()
        self._people: dict[tuple[Workspace, str], str] = {}

    async def run(self, put: Put) -> None:
        await self._run(self.workspaces, put, listens=True)

    async def run_webhooks(self, put: Put) -> None:
        await self._run(self._signed, put, listens=False)

    async def _run(self, workspaces: Sequence[Workspace], put: Put, *, listens: bool) -> None:
        async def run_one(workspace: Workspace) -> None:
            try:
                await workspace.run(put, listens=listens)
            except NotLetIn as error:
                # Of several, the others work; of all, the one line says so of each.
                if all(problems := [one.problem for one in workspaces]):
                    raise NotLetIn("; ".join(map(str, problems))) from None
                log.error(Entry(SLACK_WORKSPACE_REFUSED, channel=self.name, error=error))
                workspace.opened.set()

        self._running = workspaces
        async with asyncio.TaskGroup() as group:
            self._group = group
            for workspace in workspaces:
                group.create_task(run_one(workspace))
            try:
                await asyncio.Event().wait()
            finally:
                if self._chores:
                    await asyncio.wait(self._chores, timeout=LET_GO_WITHIN)
                self._group = None

    async def wait_ready(self) -> None:
        for workspace in self._running:
            await workspace.opened.wait()

    def _start(self, chore: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run a chore beside the turns. Returns None, and drops it, once a stop has begun."""
        try:
            if self._group is None:
                raise RuntimeError("the channel is closed")
            task = self._group.create_task(chore)
        except RuntimeError:
            # A group that is being cancelled takes no new task, and leaves the coroutine to us.
            chore.close()
            return None
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """A request to /slack/events: only what one of our workspaces signed is looked at."""
        try:
            body.decode()
        except UnicodeDecodeError:
            return 400, "the body is not UTF-8"
        for workspace in self.workspaces:
            answer = await workspace.receive(body, headers)
            if answer is not None:
                return answer
        return 401, "the signature is not Slack's"

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """Paths of the API that are this channel's."""
        return {"/slack/events": self.receive} if self._signed else {}

    @property
    def _signed(self) -> list[Workspace]:
        return [workspace for workspace in self.workspaces if workspace.access.signing_secret]

    @property
    def problems(self) -> Sequence[str]:
        found = [workspace.problem or workspace.access.deafness for workspace in self.workspaces]
        return [problem for problem in found if problem]

    def routing_text(self, payload: Payload) -> str:
        # A teammate's words are not Slack's.
        return text_before_routing(payload) if "kind" in payload else unescape(self._said(payload))

    async def readable_text(self, event: Event) -> str:
        payload = event.event
        workspace = self._of_team(payload.get("team"))
        if "kind" in payload or workspace is None:
            return text_of(event)
        reader, routed = self._readers[workspace], event.routed_text
        # Routing found its text in what was heard.
        return (
            await reader.named(routed)
            if routed is not None
            else await reader.readable(self._said(payload))
        )

    def _said(self, payload: Payload) -> str:
        """As Slack wrote it, without the name of the bot."""
        workspace = self._of_team(payload.get("team"))
        bot = None if workspace is None else workspace.bot
        return (
            text_before_routing(payload)
            if bot is None or not bot.user
            else text_for(bot, written_of(payload))
        )

    async def fetch_thread(self, payload: Payload) -> Sequence[Line]:
        workspace = self._of_team(payload.get("team"))
        try:
            return () if workspace is None else await self._readers[workspace].thread(payload)
        except Refusal as refusal:
            _untold(refusal, what="a thread")
            return ()

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        workspace = self._of_team(payload.get("team"))
        if self._files is None or workspace is None:
            return ()
        return await download.download(workspace, self._files, payload)

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        workspace = self._of_team(payload.get("team"))
        if (
            self._group is None
            or workspace is None
            or not workspace.access.status
            or not payload.get("ts")
        ):
            return nullcontext()
        return status.shown(workspace, payload, self._start, again=again)

    def split(self, response: Event) -> Sequence[Part]:
        files = [str(path) for path in response.event.get("files") or ()]
        texts = split(mrkdwn(str(response.event.get("message") or "")), LONGEST)
        texts = texts or ([] if files else [NO_ANSWER])
        parts = [Part(part_key(response, number), text) for number, text in enumerate(texts)]
        return parts + [
            Part(part_key(response, len(texts) + number), file=file)
            for number, file in enumerate(files)
        ]

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        if part.file is None:
            return {}
        _, workspace = await self._place(response)
        return await upload.upload(workspace, self._files, part.file, response.event)

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        place, workspace = await self._place(response)
        if part.file is not None:
            return await upload.share(workspace, place, note)
        message = {
            "channel": place.channel,
            "text": part.text,
            "thread_ts": place.thread_ts,
            "metadata": {"event_type": EVENT_TYPE, "event_payload": {"key": part.key}},
            "unfurl_links": False,
        }
        answer = await _post(workspace, message, response.event.get(PROFILE) or {})
        return {"channel": answer.get("channel") or place.channel, "ts": answer.get("ts")}

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """Slack keeps the key of a text with its message, and a file has an id of its own."""
        place, workspace = await self._place(response)
        try:
            if part.file is not None:
                return await upload.shared(workspace, place, note)
            # Not the whole history of a channel; clocks may differ by some minutes.
            since = place.after or f"{(response.created_at - EARLIER).timestamp():.6f}"
            wanted = {"oldest": since, "include_all_metadata": True}
            async for message in messages(workspace, place.channel, place.thread_ts, **wanted):
                if _is_part(message, part, workspace):
                    return {"channel": place.channel, "ts": message.get("ts")}
        except Refusal as refusal:
            _untold(refusal, what=f"the part {part.key}")
        return None

    async def _place(self, response: Event) -> tuple[Place, Workspace]:
        place = place_of(response.event)
        workspace = await self._workspace(place)
        if not place.is_person:
            return place, workspace
        key = (workspace, place.channel)
        if key not in self._people:
            opened = await workspace.call("conversations.open", users=place.channel)
            self._people[key] = opened["channel"]["id"]
        return replace(place, channel=self._people[key]), workspace

    def _of_team(self, team: str | None) -> Workspace | None:
        if len(self.workspaces) == 1:
            return self.workspaces[0]
        return next(
            (one for one in self.workspaces if one.bot is not None and one.bot.team == team), None
        )

    async def _workspace(self, place: Place) -> Workspace:
        found = self._of_team(place.team)
        if found is not None and found.is_ready:
            return found
        # It may be one that is still signing in, however long Slack is out of reach.
        if not all(workspace.is_ready or workspace.problem for workspace in self.workspaces):
            raise NotNow(SIGNING_IN)
        return await self._sharing(place)

    async def _sharing(self, place: Place) -> Workspace:
        """In a channel that workspaces share, people of others speak: whichever of ours is in it may answer."""
        for workspace in self.workspaces:
            with suppress(Undeliverable, Refusal, NotLetIn):
                await workspace.call("conversations.info", channel=place.channel)
                return workspace
        if any(workspace.problem for workspace in self.workspaces):
            # It may be that one's, which a person has to mend first.
            raise NotNow(MENDED_AFTER)
        raise Undeliverable("team_not_found", f"there is no token for the workspace {place.team}")


async def _post(workspace: Workspace, message: Payload, profile: Payload) -> Payload:
    """Post under the name and icon of a profile; under the bot's own if the app lacks the scope for it."""
    if profile and workspace.can_customize:
        try:
            return await workspace.call("chat.postMessage", **message, **_customization(profile))
        except Refusal as refusal:
            if refusal.code != "missing_scope":
                raise
            workspace.can_customize = False
            log.warning(Entry(SLACK_CUSTOMIZE_REFUSED, scope=CUSTOMIZE_SCOPE, error=refusal))
    return await workspace.call("chat.postMessage", **message)


def _customization(profile: Payload) -> Payload:
    icon = str(profile.get("icon") or "")
    kind = "icon_emoji" if icon.startswith(":") else "icon_url"
    return {"username": profile["name"], **({kind: icon} if icon else {})}


def _untold(refusal: Refusal, *, what: str) -> None:
    """Goes on without what Slack will never tell; raises what may be over soon."""
    if refusal.code not in CANNOT_TELL:
        raise refusal
    log.warning(Entry(SLACK_LOOKUP_FAILED, what=what, error=refusal))


def _is_part(message: Payload, part: Part, workspace: Workspace) -> bool:
    kept = message.get("metadata") or {}
    if kept.get("event_type") == EVENT_TYPE:
        return bool((kept.get("event_payload") or {}).get("key") == part.key)
    # Where metadata does not come back, as from a server that is not Slack's own: the same words of ours.
    is_ours = workspace.bot is not None and workspace.bot.is_author(message)
    return is_ours and not kept and message.get("text") == part.text
