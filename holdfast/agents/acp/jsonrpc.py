"""JSON-RPC over the standard streams of a program, one object per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from holdfast.errors import HoldfastError

Object = dict[str, Any]

NO_SUCH_METHOD = {"code": -32601, "message": "this client has no such method"}


class RequestRefused(HoldfastError):
    """The program answered a request with an error."""

    def __init__(self, method: str, error: Object) -> None:
        super().__init__(f"{method}: {error.get('message') or 'no reason given'}")
        self.code = error.get("code")


class ProgramEnded(HoldfastError):
    """The program closed its output before it answered a request."""


class ProgramFlooded(HoldfastError):
    """The program wrote more than it may."""


class JsonRpc:
    """One conversation with a program. Whatever it asks is handled while we wait for its
    answers."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        max_output: int,
        on_request: Callable[[str, Object], Awaitable[Object | None]],
        on_notification: Callable[[str, Object], Awaitable[None]],
    ) -> None:
        assert process.stdin and process.stdout  # noqa: PT018 - they are pipes
        self._stdin, self._stdout = process.stdin, process.stdout
        self._left = self._max_output = max_output
        self._on_request, self._on_notification = on_request, on_notification
        self._ids = count(1)
        self._asked: object = None
        """Id of the program's request that is being handled."""

    async def request(self, method: str, **params: Any) -> Object:
        """Send a request and return its result.

        Raises RequestRefused, ProgramEnded or ProgramFlooded."""
        return await self.result(method, await self.send(method, **params))

    async def send(self, method: str, **params: Any) -> int:
        """Send a request without waiting. Returns its id."""
        id = next(self._ids)
        self._write({"id": id, "method": method, "params": params})
        return id

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification, which has no answer."""
        self._write({"method": method, "params": params})

    async def result(self, method: str, id: int) -> Object:
        """Wait for the result of a request, and handle what the program sends meanwhile."""
        while True:
            message = await self._read()
            if isinstance(message.get("method"), str):
                await self._handle(message)
            elif message.get("id") == id:
                if (error := message.get("error")) is not None:
                    raise RequestRefused(method, _object(error))
                return _object(message.get("result"))

    async def _handle(self, message: Object) -> None:
        method, params = message["method"], _object(message.get("params"))
        if "id" not in message:
            return await self._on_notification(method, params)
        self._asked = message["id"]
        return await self.answer(await self._on_request(method, params))

    async def answer(self, result: Object | None) -> None:
        """Answer the program's request, if one is open. None refuses its method."""
        if self._asked is not None:
            id, self._asked = self._asked, None
            answer = {"error": NO_SUCH_METHOD} if result is None else {"result": result}
            self._write({"id": id, **answer})

    def _write(self, message: Object) -> None:
        # Do not wait until the program reads: it may first want us to read what it writes.
        self._stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        if self._stdin.is_closing():
            raise ProgramEnded("the program closed its input")

    async def _read(self) -> Object:
        """Return the next message. Other lines are skipped, since programs may print greetings."""
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:  # longer than the buffer
                line = b" " * (self._left + 1)
            if not line:
                raise ProgramEnded("the program ended before it answered")
            self._left -= len(line)
            if self._left < 0:
                raise ProgramFlooded(f"the program wrote more than {self._max_output} bytes")
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                return message


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}
