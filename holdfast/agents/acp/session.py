"""Sessions of programs, one for each conversation."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel


class Session(BaseModel):
    """A session of the program, the turn it worked last, and the permissions it used up."""

    id: str = ""
    events: list[int] = []
    used: dict[str, int] = {}


class SessionFile:
    """The session of one conversation, in a file that the program cannot reach."""

    def __init__(self, folder: Path, conversation: str) -> None:
        self._path = folder / f"{digest(conversation)}.json"

    def read(self) -> Session | None:
        """Return the stored session. None if there is none or a crash left half of it."""
        try:
            return Session.model_validate_json(self._path.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, session: Session) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.write_text(session.model_dump_json())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
