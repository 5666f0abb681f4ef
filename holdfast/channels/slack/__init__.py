"""The Slack channel: mentions and direct messages in, replies in their threads out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.channels.accounts import check_accounts
from holdfast.channels.background import BackgroundTasks
from holdfast.channels.base import (
    Channel,
    Check,
    Line,
    NotNow,
    Part,
    Preview,
    PreviewFence,
    Progress,
    Put,
    Undeliverable,
    Webhook,
    part_key,
)
from holdfast.channels.cache import Cache
from holdfast.channels.parts import parts_of
from holdfast.channels.preview import EditedPreview, Style, replace_preview
from holdfast.channels.slack import download, reaction, upload
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.check import check
from holdfast.channels.slack.errors import AccessDenied, Refusal
from holdfast.channels.slack.incoming import text_without_mention
from holdfast.channels.slack.mrkdwn import unescape
from holdfast.channels.slack.post import (
    LONGEST_PART,
    Destination,
    Post,
    destination_of,
    log_unsupported,
    texts_of,
)
from holdfast.channels.slack.press import blocks_of, press_of, show_press, take_press
from holdfast.channels.slack.reader import Reader
from holdfast.channels.slack.thread_status import ThreadStatus
from holdfast.channels.slack.workspace import Workspace
from holdfast.message import PREVIEW, PROFILE, Payload, text_before_routing, text_of, written_of
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.telemetry import SLACK_WORKSPACE_REFUSED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LOOK_BACK = timedelta(minutes=10)
"""A look-up starts this much before the response was stored, since clocks may differ."""
SIGN_IN_DELAY = timedelta(seconds=1)
"""Delay of a response while its workspace may still be signing in."""
REPAIR_DELAY = timedelta(minutes=1)
"""Delay of a response while a person has to repair a workspace."""
MOST_PEOPLE = 10_000
"""Maximum number of people whose direct messages are remembered."""
STYLE = Style(texts_of, LONGEST_PART)


class SlackChannel(Channel):
    """All configured workspaces. The team in a response's conversation selects its workspace."""

    name = "slack"
    notifies_senders = True
    has_buttons = True

    def __init__(
        self,
        accesses: Sequence[Access],
        *,
        files: Path | None = None,
        store: Store | None = None,
    ) -> None:
        self._store = store
        self._background = BackgroundTasks()
        self.workspaces = [Workspace(access, store, self._receive_press) for access in accesses]
        self._readers = {workspace: Reader(workspace) for workspace in self.workspaces}
        self._files = files
        self._running: Sequence[Workspace] = self.workspaces
        self._people: Cache[tuple[Workspace, str], str] = Cache(MOST_PEOPLE)

    async def run(self, put: Put) -> None:
        await self._run(self.workspaces, put, listens=True)

    async def run_webhooks(self, put: Put) -> None:
        await self._run(self._signed_workspaces, put, listens=False)

    async def _run(self, workspaces: Sequence[Workspace], put: Put, *, listens: bool) -> None:
        async def run_one(workspace: Workspace) -> None:
            try:
                await workspace.run(put, listens=listens)
            except AccessDenied as error:
                workspace.listening.set()
                # Go on while another workspace works. If none does, fail with all reasons.
                if all(problems := [one.problem for one in workspaces]):
                    raise AccessDenied("; ".join(map(str, problems))) from None
                log.error(Entry(SLACK_WORKSPACE_REFUSED, channel=self.name, error=error))

        self._running = workspaces
        async with self._background.open() as group:
            for workspace in workspaces:
                group.create_task(run_one(workspace))
            await asyncio.Event().wait()

    async def wait_ready(self) -> None:
        for workspace in self._running:
            await workspace.listening.wait()

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Handle a request to /slack/events.

        Requests that no workspace signed are refused unread."""
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
        return {"/slack/events": self.receive} if self._signed_workspaces else {}

    @property
    def _signed_workspaces(self) -> list[Workspace]:
        return [workspace for workspace in self.workspaces if workspace.access.signing_secret]

    @property
    def problems(self) -> Sequence[str]:
        found = [
            one.problem or one.access.receiving_problem or one.outage for one in self.workspaces
        ]
        return [problem for problem in found if problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self.workspaces]
        return await check_accounts(accesses, check, lambda access: access.name)

    def routing_text(self, payload: Payload) -> str:
        # A hand-off of a teammate is our own payload, not one of Slack.
        if "kind" in payload:
            return text_before_routing(payload)
        return unescape(self._text_without_mention(payload))

    async def readable_text(self, event: Event) -> str:
        payload = event.event
        workspace = self._workspace_of_team(payload.get("team"))
        if "kind" in payload or workspace is None:
            return text_of(event)
        reader, routed = self._readers[workspace], event.routed_text
        # Routing has unescaped its text already.
        if routed is not None:
            return await reader.replace_ids(routed)
        return await reader.readable(self._text_without_mention(payload))

    def _text_without_mention(self, payload: Payload) -> str:
        """Return the text as Slack wrote it, without the mention of the bot."""
        workspace = self._workspace_of_team(payload.get("team"))
        bot = None if workspace is None else workspace.bot
        if bot is None or not bot.user:
            return text_before_routing(payload)
        return text_without_mention(bot, written_of(payload))

    async def _receive_press(self, workspace: Workspace, payload: Payload) -> None:
        pressed = press_of(payload)
        if self._store is None or pressed is None:
            return
        button = await take_press(self._store, workspace, pressed)
        # Slack waits three seconds for the acknowledgement, so answer the person after it.
        self._background.start(show_press(workspace, pressed, button))

    async def fetch_thread(self, payload: Payload) -> Sequence[Line]:
        workspace = self._workspace_of_team(payload.get("team"))
        try:
            return () if workspace is None else await self._readers[workspace].thread(payload)
        except Refusal as refusal:
            log_unsupported(refusal, what="a thread")
            return ()

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        workspace = self._workspace_of_team(payload.get("team"))
        if self._files is None or workspace is None:
            return ()
        return await download.download_files(workspace, self._files, payload)

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        workspace = self._workspace_of_team(payload.get("team"))
        if (
            not self._background.is_open
            or workspace is None
            or not workspace.access.status
            or not payload.get("ts")
        ):
            return nullcontext()
        return reaction.show_reaction(workspace, payload, self._background.start, again=again)

    def open_preview(
        self, draft: Payload, key: str, note: Payload, fence: PreviewFence
    ) -> Preview | None:
        destination = destination_of(draft)
        workspace = self._workspace_of_team(destination.team)
        if not self._background.is_open or workspace is None or destination.is_person:
            return None
        since = destination.after or f"{(datetime.now(UTC) - LOOK_BACK).timestamp():.6f}"
        post = Post(workspace, destination, key, draft.get(PROFILE) or {}, since)
        return EditedPreview(post, STYLE, workspace.edits, note, fence, self._background.start)

    def open_progress(self, draft: Payload, fence: PreviewFence) -> Progress | None:
        destination = destination_of(draft)
        workspace = self._workspace_of_team(destination.team)
        if not self._background.is_open or workspace is None or not workspace.can_set_status:
            return None
        # Only threads have a status.
        if destination.thread_ts is None:
            return None
        return ThreadStatus(workspace, destination, fence, self._background.start)

    def split(self, response: Event) -> Sequence[Part]:
        return parts_of(response, texts_of)

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        if part.file is None:
            return {}
        _, workspace = await self._resolve(response)
        return await upload.upload_file(workspace, self._files, part.file, response.event)

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        destination, workspace = await self._resolve(response)
        if part.file is not None:
            return await upload.share_file(workspace, destination, note)
        post = _post_of(response, part, workspace, destination)
        if part == _last_text(self.split(response)):
            post = replace(post, blocks=blocks_of(response, part.text))
        preview = response.event.get(PREVIEW)
        ts = None
        if preview and part.key == part_key(response, 0):
            ts = await replace_preview(post, preview, part.text)
        if ts is None and part.text:
            ts = await post.post(part.text)
        return {"channel": destination.channel, "ts": ts}

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """Find a text by the key in its metadata, and a file by its id."""
        destination, workspace = await self._resolve(response)
        if part.file is None:
            post = _post_of(response, part, workspace, destination)
            ts = await post.find(part.key, part.text)
            return None if ts is None else {"channel": destination.channel, "ts": ts}
        try:
            return await upload.find_share(workspace, destination, note)
        except Refusal as refusal:
            log_unsupported(refusal, what=f"the part {part.key}")
            return None

    async def _resolve(self, response: Event) -> tuple[Destination, Workspace]:
        """Return the destination of a response and its workspace; opens direct messages if
        needed."""
        destination = destination_of(response.event)
        workspace = await self._sending_workspace(destination)
        if not destination.is_person:
            return destination, workspace
        key = (workspace, destination.channel)
        channel = self._people.get(key)
        if channel is None:
            opened = await workspace.call("conversations.open", users=destination.channel)
            channel = self._people.keep(key, str(opened["channel"]["id"]))
        return replace(destination, channel=channel), workspace

    def _workspace_of_team(self, team: str | None) -> Workspace | None:
        if len(self.workspaces) == 1:
            return self.workspaces[0]
        return next(
            (one for one in self.workspaces if one.bot is not None and one.bot.team == team), None
        )

    async def _sending_workspace(self, destination: Destination) -> Workspace:
        found = self._workspace_of_team(destination.team)
        if found is not None and found.is_ready:
            return found
        # The workspace may be one that is still signing in, as long as Slack is unreachable.
        if not all(workspace.is_ready or workspace.problem for workspace in self.workspaces):
            raise NotNow(SIGN_IN_DELAY)
        return await self._workspace_in_channel(destination)

    async def _workspace_in_channel(self, destination: Destination) -> Workspace:
        """Return a workspace whose bot is in the channel.

        In a shared channel people may be of a foreign team, which selects no workspace."""
        for workspace in self.workspaces:
            with suppress(Undeliverable, Refusal, AccessDenied):
                await workspace.call("conversations.info", channel=destination.channel)
                return workspace
        if any(workspace.problem for workspace in self.workspaces):
            # The channel may belong to the workspace that a person has to repair first.
            raise NotNow(REPAIR_DELAY)
        raise Undeliverable(
            "team_not_found", f"there is no token for the workspace {destination.team}"
        )


def _last_text(parts: Sequence[Part]) -> Part | None:
    """Return the part below which the buttons of a response are shown."""
    return next((part for part in reversed(parts) if part.file is None), None)


def _post_of(response: Event, part: Part, workspace: Workspace, destination: Destination) -> Post:
    since = destination.after or f"{(response.created_at - LOOK_BACK).timestamp():.6f}"
    return Post(workspace, destination, part.key, response.event.get(PROFILE) or {}, since)
