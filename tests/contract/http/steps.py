"""Steps that the tests of the HTTP contract share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from holdfast.api.security.bootstrap_tokens import Role
from holdfast.chat import ChatStore
from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings

HOST = "127.0.0.1"
LEASE = timedelta(minutes=10)
Answered = tuple[int, Any]


@dataclass
class Api:
    """Asks with the token of a role, and works what was stored."""

    client: httpx.AsyncClient
    store: ChatStore
    tokens: dict[Role, str]
    settings: Settings
    app: FastAPI

    async def ask(
        self, method: str, path: str, body: Any = None, role: Role = "admin", **further: Any
    ) -> Answered:
        """Status and answer."""
        if body is not None:
            further["json"] = body
        headers = {"authorization": f"Bearer {self.tokens[role]}"} | further.pop("headers", {})
        answer = await self.client.request(method, path, headers=headers, **further)
        return answer.status_code, answer.json()

    async def page(self, path: str, role: Role = "admin") -> tuple[Any, str]:
        """One page of a list, and the address of the next one."""
        answer = await self.client.get(
            path, headers={"authorization": f"Bearer {self.tokens[role]}"}
        )
        assert answer.status_code == 200, answer.text
        return answer.json(), answer.headers.get("link", "").removeprefix("<").partition(">")[0]

    async def get(self, path: str, role: Role = "admin") -> Any:
        """The answer to a question that is allowed."""
        status, answer = await self.ask("GET", path, role=role)
        assert status == 200, answer
        return answer

    async def post(self, path: str, body: Any = None, role: Role = "admin") -> Answered:
        return await self.ask("POST", path, body, role)

    async def say(self, message: str = "hello", **fields: Any) -> str:
        """Stores a message; its id."""
        status, answer = await self.post("/api/message", {"message": message} | fields)
        assert status == 200, answer
        return str(answer["messageId"])

    async def claim(
        self, queue: str = INBOX, targets: tuple[str, ...] = ("", "coder", "writer", "api")
    ) -> LeasedTurn:
        [turn] = await self.store.claim(
            queue, targets, limit=1, lease=LEASE, holder="worker-1", max_attempts=5
        )
        return turn

    async def bury(self, error: str = "no", queue: str = INBOX) -> int:
        """The next message becomes a dead letter; its id."""
        turn = await self.claim(queue)
        await self.store.settle([(turn, Dead(error, "hopeless"))])
        return turn.primary.id

    async def respond(self, message: str = "hi", **fields: Any) -> int:
        """A response that waits for the client of a channel."""
        payload = {
            "kind": "response",
            "channel": "api",
            "conversation": "api:API",
            "sender": "API",
            "sender_id": None,
            "message": message,
            "original_message": "hello",
            "message_id": "api_1",
            "agent": "coder",
        } | fields
        [id_] = await self.store.put(
            [NewEvent(event=payload, queue=OUTBOX, target=payload["channel"])]
        )
        assert id_ is not None
        return id_

    async def complete(self) -> int:
        turn = await self.claim()
        await self.store.settle([(turn, Done())])
        return turn.primary.id
