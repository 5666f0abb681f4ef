"""Frames of the event stream as TinyAGI names them, for its channel clients.

`docs/reference/names.md` lists the names. A translated frame comes right before ours and carries
the id before it. So a client that is cut off between the two gets both again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.feed import Cursor, FeedFrame, encode
from holdfast.message import Payload

TINYAGI = "tinyagi"
NAMES = {
    "message_received": "message:incoming",
    "chain_step_start": "agent:invoke",
    "progress": "agent:progress",
    "chain_step_done": "agent:response",
    "chain_handoff": "agent:mention",
    "response_ready": "message:done",
}
"""TinyAGI's names of frames, by ours."""
SHOWN = 120
"""Characters of a message in `message:incoming`."""


class Translator:
    """Adds TinyAGI's frames to those of one client; `agent_names` are display names by id.

    `types` limits the frames by name, ours or TinyAGI's; empty means all."""

    def __init__(self, agent_names: Mapping[str, str], types: set[str]) -> None:
        self._agent_names = agent_names
        self._types = types
        self._answer: tuple[str, str] = ("", "")

    @property
    def needed_types(self) -> set[str]:
        """Our types of frames that the client's filter lets through; empty means all."""
        theirs = {ours for ours, name in NAMES.items() if name in self._types}
        # The text of `message:done` is in another frame.
        answers = {"chain_step_done"} if "message:done" in self._types else set[str]()
        return {*self._types, *theirs, *answers} - {*NAMES.values()}

    def encode(self, feed_frame: FeedFrame, before: Cursor) -> bytes:
        """Return the frames for the client, TinyAGI's first."""
        frame = feed_frame.frame
        translated = self.translate(frame)
        is_wanted = translated is not None and self._is_wanted(str(translated["type"]))
        theirs = encode(translated, before) if translated is not None and is_wanted else b""
        return theirs + (feed_frame.text if self._is_wanted(frame["type"]) else b"")

    def translate(self, frame: Payload) -> Payload | None:
        """Return a frame with TinyAGI's name and keys; None if it has no such event."""
        name = NAMES.get(frame["type"])
        if name is None:
            return None
        if name == "agent:response":
            self._answer = (frame["messageId"], str(frame.get("response") or ""))
        return {"type": name, "timestamp": frame["timestamp"]} | self._fields(name, frame)

    def _is_wanted(self, name: str) -> bool:
        return not self._types or name in self._types

    def _fields(self, name: str, frame: Payload) -> Payload:
        message = {key: frame.get(key) for key in ("messageId", "channel", "sender")}
        agent = str(frame.get("agent") or "")
        speaker = {"agentId": agent, "agentName": self._agent_names.get(agent, agent)}
        match name:
            case "message:incoming":
                text = str(frame.get("message") or "")[:SHOWN]
                return message | {"agent": agent or None, "message": text}
            case "agent:invoke":
                return speaker | message | {"fromAgent": None}
            case "agent:progress":
                return speaker | message | {"text": frame.get("text")}
            case "agent:response":
                answer = {"role": "assistant", "content": self._answer[1], "isTeamMessage": False}
                return speaker | message | answer
            case "agent:mention":
                ends = {key: frame.get(key) for key in ("fromAgent", "toAgent")}
                return message | ends | {"teamId": None}
            case _:
                return {"agentId": agent} | message | self._response(frame)

    def _response(self, frame: Payload) -> Payload:
        """Return the text of a response, if this client has seen the answer before it."""
        message_id, text = self._answer
        if message_id != frame["messageId"]:
            return {}
        return {"responseText": text, "responseLength": len(text)}
