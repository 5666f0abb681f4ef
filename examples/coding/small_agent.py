#!/usr/bin/python3
"""A small coding agent without a language model. Speaks the Agent Client Protocol on its standard
streams, as Claude Code, Codex and Gemini do, and asks before it changes a file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

Object = dict[str, Any]

SESSIONS = Path(".sessions")
YES = {"optionId": "allow", "name": "Do it", "kind": "allow_once"}
NO = {"optionId": "reject", "name": "Leave it", "kind": "reject_once"}


class Cancelled(Exception):
    """The client ended the prompt."""


def send(message: Object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def read() -> Object:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: Object = json.loads(line)
    return message


class Session:
    """One conversation. Its updates are kept in a file, so that a later process can load it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._path = SESSIONS / f"{id}.jsonl"

    def load(self) -> None:
        """Tell the client all updates again."""
        for line in self._path.read_text().splitlines():
            self._notify(json.loads(line))

    def update(self, name: str, **fields: Any) -> None:
        SESSIONS.mkdir(exist_ok=True)
        update = {"sessionUpdate": name, **fields}
        with self._path.open("a") as file:
            file.write(f"{json.dumps(update)}\n")
        if name != "user_message_chunk":
            self._notify(update)

    def say(self, text: str) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text})

    def change(self, path: Path, new: str) -> None:
        """Change a file if the client permits it."""
        old = path.read_text() if path.exists() else None
        diff = {"type": "diff", "path": path.name, "oldText": old, "newText": new}
        call: Object = {"toolCallId": uuid4().hex, "title": f"Change {path.name}", "kind": "edit"}
        call |= {"content": [diff]}
        self.update("tool_call", **call, status="pending")
        if not self._may(call):
            return self.say(f"I left {path.name} as it was.")
        path.write_text(new)
        self.update("tool_call_update", toolCallId=call["toolCallId"], status="completed")
        return self.say(f"I changed {path.name}.")

    def _may(self, call: Object) -> bool:
        params = {"sessionId": self.id, "toolCall": call, "options": [YES, NO]}
        send({"id": call["toolCallId"], "method": "session/request_permission", "params": params})
        while (message := read()).get("id") != call["toolCallId"]:
            if message.get("method") == "session/cancel":
                raise Cancelled
        outcome = message["result"]["outcome"]
        if outcome["outcome"] == "cancelled":
            raise Cancelled
        return bool(outcome["optionId"] == YES["optionId"])

    def _notify(self, update: Object) -> None:
        params = {"sessionId": self.id, "update": update}
        send({"method": "session/update", "params": params})


def prompt(session: Session, text: str) -> Object:
    """Work one message: `write NAME: TEXT`, or `rename OLD to NEW` in all files."""
    session.update("user_message_chunk", content={"type": "text", "text": text})
    order = text.splitlines()[-1]
    try:
        if found := re.fullmatch(r"write ([\w.-]+): (.*)", order):
            session.change(Path(found[1]), f"{found[2]}\n")
        elif found := re.fullmatch(r"rename (\w+) to (\w+)", order):
            old, new = re.compile(rf"\b{found[1]}\b"), found[2]
            files = [path for path in sorted(Path().iterdir()) if path.is_file()]
            files = [path for path in files if old.search(path.read_text())]
            if order == text:  # else the client says that we were interrupted
                session.say(f"{found[1]} stands in {len(files)} files.")
            for path in files:
                session.change(path, old.sub(new, path.read_text()))
        else:
            session.say('Say something like "write a.py: print(colour)" or "rename colour to hue".')
    except Cancelled:
        return {"stopReason": "cancelled"}
    return {"stopReason": "end_turn"}


def answer(method: str, params: Object) -> Object:
    """Answer one request of the client."""
    session = Session(params.get("sessionId") or uuid4().hex)
    if method == "initialize":
        return {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    if method == "session/load":
        session.load()
        return {}
    if method == "session/new":
        return {"sessionId": session.id}
    return prompt(session, params["prompt"][0]["text"])


if __name__ == "__main__":
    while True:
        request = read()
        if "id" in request:
            send({"id": request["id"], "result": answer(request["method"], request["params"])})
