"""One prompt of a session: our requests, and the program's requests and updates meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from holdfast.agents.acp.jsonrpc import JsonRpc, Object, RequestRefused
from holdfast.agents.acp.permission import CANCELLED, Permission, text_of
from holdfast.agents.acp.session import Session, SessionFile
from holdfast.agents.base import NO_ANSWER, Answer, prompt_of
from holdfast.agents.turn import Turn
from holdfast.queue.outcome import Dead
from holdfast.telemetry import count_tokens, token_counts

VERSION = 1
GO_ON = "You were interrupted while you worked on this message. Go on where you stopped:\n\n"


class Paragraphs:
    """The text of the program. Pieces before and after a tool call are paragraphs."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._has_gap = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, piece: str) -> str:
        """Add a piece of text. Returns it with the blank line that it needs before it, if any."""
        if piece:
            piece = f"\n\n{piece}" if self._has_gap and self._pieces else piece
            self._pieces.append(piece)
            self._has_gap = False
        return piece

    def end_paragraph(self) -> None:
        self._has_gap = True


class Prompt:
    """Works the message of a turn in the session of its conversation."""

    def __init__(
        self,
        turn: Turn,
        process: asyncio.subprocess.Process,
        file: SessionFile,
        max_output: int,
        approval: timedelta,
    ) -> None:
        self._turn, self._file, self._approval = turn, file, approval
        self._rpc = JsonRpc(process, max_output, self._handle_request, self._handle_notification)
        self._session = Session()
        self._text = Paragraphs()
        self._is_loading = self._is_cancelled = False
        self._running: int | None = None

    async def answer(self, workspace: Path) -> Answer:
        """Send the message, and write to the turn what the program says."""
        about = await self._initialize()
        if (version := about.get("protocolVersion")) != VERSION:
            return Dead(f"the program speaks version {version} of ACP, not {VERSION}", "protocol")
        can_load = bool((about.get("agentCapabilities") or {}).get("loadSession"))
        text = await self._open_session(can_load, {"cwd": str(workspace), "mcpServers": []})
        self._running = await self._rpc.send(
            "session/prompt", sessionId=self._session.id, prompt=[{"type": "text", "text": text}]
        )
        return self._finish(await self._rpc.result("session/prompt", self._running))

    async def cancel(self) -> None:
        """Cancel the prompt and wait for its end."""
        self._is_cancelled = True
        if self._running is not None:
            await self._rpc.notify("session/cancel", sessionId=self._session.id)
            await self._rpc.answer(CANCELLED)
            await self._rpc.result("session/prompt", self._running)

    async def _initialize(self) -> Object:
        return await self._rpc.request(
            "initialize",
            protocolVersion=VERSION,
            clientCapabilities={"fs": {"readTextFile": False, "writeTextFile": False}},
            clientInfo={"name": "holdfast", "version": "1"},
        )

    async def _open_session(self, can_load: bool, where: Object) -> str:
        """Load the session of the conversation or begin one. Returns the text to prompt with."""
        stored, text = self._file.read() if can_load else None, prompt_of(self._turn)
        if stored is None or not await self._load(stored, where):
            new = await self._rpc.request("session/new", **where)
            self._session = Session(id=str(new.get("sessionId")))
        elif stored.events == self._turn.ids:
            return GO_ON + text
        self._text = Paragraphs()
        self._session.events = self._turn.ids
        self._file.write(self._session)
        return text

    async def _load(self, stored: Session, where: Object) -> bool:
        """Load a session. Returns whether the program still knows it.

        The program replays the whole conversation. If it worked on this turn's message before, its
        text since that message begins our answer."""
        self._is_loading = True
        try:
            await self._rpc.request("session/load", sessionId=stored.id, **where)
        except RequestRefused:
            return False
        finally:
            self._is_loading = False
        self._session = stored
        if stored.events == self._turn.ids and self._text.text:
            await self._turn.write(self._text.text)
        self._text.end_paragraph()
        return True

    def _finish(self, result: Object) -> Answer:
        """Return the last piece of the answer; the rest is written already."""
        self._count_tokens(result.get("usage") or {})
        reason = result.get("stopReason")
        if reason != "end_turn":
            self._text.end_paragraph()
            return self._text.add(f"(stopped: {reason})")
        return None if self._text.text.strip() else NO_ANSWER

    def _count_tokens(self, usage: Object) -> None:
        names = {"input_tokens": "inputTokens", "output_tokens": "outputTokens"}
        if counts := token_counts({name: usage.get(given) for name, given in names.items()}):
            self._turn.metadata["usage"] = counts
            count_tokens(self._turn.agent, "acp", counts)

    async def _handle_notification(self, method: str, params: Object) -> None:
        self._turn.progress()
        update = params.get("update")
        if method == "session/update" and isinstance(update, dict) and not self._is_cancelled:
            await self._handle_update(update)

    async def _handle_update(self, update: Object) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                piece = self._text.add(text_of(update))
                if piece and not self._is_loading:
                    await self._turn.write(piece)
            case "tool_call" | "tool_call_update":
                self._text.end_paragraph()
                if (title := update.get("title")) and not self._is_loading:
                    self._turn.progress(str(title))
            case "user_message_chunk" if self._is_loading:
                if not text_of(update).startswith(GO_ON):
                    self._text = Paragraphs()
                self._text.end_paragraph()

    async def _handle_request(self, method: str, params: Object) -> Object | None:
        if method != "session/request_permission":
            return None
        return CANCELLED if self._is_cancelled else await self._ask(Permission.of(params))

    async def _ask(self, permission: Permission) -> Object:
        """Ask people about a tool call. Returns the answer for the program.

        The permission is recorded as used before the program gets it. So after a crash, one
        permission does not allow the same call of a session twice."""
        number = self._session.used.get(permission.digest, 0) + 1
        name = f"permission {permission.digest[:12]} {number}"
        question, labels = permission.question, permission.labels
        try:
            label = await self._turn.signal(name, self._approval, prompt=question, options=labels)
        except TimeoutError:
            label = None
        self._session.used[permission.digest] = number
        self._file.write(self._session)
        return permission.outcome(label)
