"""An agent on the protocol's own library, which does what the message says, for tests."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)

OPTIONS = [
    PermissionOption(option_id="a", name="Allow", kind="allow_once"),
    PermissionOption(option_id="r", name="Reject", kind="reject_once"),
]
SESSION = "session-1"


class ScriptedAgent:
    """Takes the last line of a message as words: `say:x`, `ask:x`, `end:reason`, `die`, `hang`."""

    def __init__(self) -> None:
        self._log = Path("log")

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> InitializeResponse:
        if "login" in sys.argv:
            raise acp.RequestError.auth_required()
        can_load = AgentCapabilities(load_session="load" in sys.argv)
        version = 2 if "newer" in sys.argv else protocol_version
        return InitializeResponse(protocol_version=version, agent_capabilities=can_load)

    async def new_session(self, cwd: str, **more: Any) -> NewSessionResponse:
        self._note("new")
        return NewSessionResponse(session_id=SESSION)

    async def load_session(self, session_id: str, **more: Any) -> LoadSessionResponse:
        if not self._log.exists():
            raise acp.RequestError.resource_not_found(session_id)
        self._note("load")
        await self._update(acp.update_user_message_text("the message"))
        await self._update(acp.update_agent_message_text("before"))
        return LoadSessionResponse()

    async def prompt(self, prompt: list[Any], **more: Any) -> PromptResponse:
        [block] = prompt
        self._note(f"prompt {block.text!r}")
        for word in block.text.splitlines()[-1].split():
            act, _, value = word.partition(":")
            match act:
                case "say":
                    await self._update(acp.update_agent_message_text(value))
                case "ask":
                    await self._ask(value)
                case "end":
                    return PromptResponse(stop_reason=value)
                case "flood":
                    await self._update(acp.update_agent_message_text("x" * 200_000))
                case "fail":
                    raise acp.RequestError.internal_error()
                case "die":
                    print("no disk", file=sys.stderr, flush=True)
                    os._exit(3)
                case "hang":
                    await asyncio.Event().wait()
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **more: Any) -> None:
        self._note("cancel")

    async def _ask(self, title: str) -> None:
        call = ToolCallUpdate(tool_call_id=os.urandom(4).hex(), title=title, kind="execute")
        await self._update(acp.start_tool_call(call.tool_call_id, title, kind="execute"))
        given = await self._client.request_permission(
            options=OPTIONS, session_id=SESSION, tool_call=call
        )
        outcome = given.outcome
        chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else "cancelled"
        self._note(f"{title} {chosen}")
        if chosen == "a":
            await self._update(acp.update_agent_message_text(f"did {title}"))

    async def _update(self, update: Any) -> None:
        await self._client.session_update(SESSION, update)

    def _note(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(ScriptedAgent()))  # type: ignore[arg-type]
