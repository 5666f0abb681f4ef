"""A mailbox, read over IMAP. All calls block, so they run in threads."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from imapclient import IMAPClient  # type: ignore[import-untyped]
from imapclient.exceptions import IMAPClientError, LoginError  # type: ignore[import-untyped]

from holdfast.channels.email.access import Access
from holdfast.channels.files import too_large
from holdfast.errors import HoldfastError

TIMEOUT = 30.0
IDLE_SLICE = 0.5
"""Seconds after which a waiting thread looks whether it has to stop."""
IDLE_FOR = 60.0
"""Seconds of one IDLE command. Then the folder is read again, in case a notice was lost."""
FIRST_IDLE_FOR = 2.0
"""Seconds of the first IDLE after a new message. Some servers do not report a message that arrives
while the command begins, so look at the folder again soon."""
POLL_EVERY = 30.0
"""Seconds between two looks at a server without IDLE."""
BEGINNING = 256 * 1024
"""Bytes that are read of a message that is too large."""
FLAG_SENT = b"\\Sent"
FLAG_ANSWERED = b"\\Answered"
"""Flag that people's mail programs set. The channel opens the folder for reading only."""


class AccessDenied(HoldfastError):
    """A mail server refuses the user or the password."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a folder. Uids are valid only together with the folder's uidvalidity."""

    validity: int
    uid: int

    def __str__(self) -> str:
        return f"{self.validity}:{self.uid}"

    @classmethod
    def parse(cls, text: str) -> Position:
        validity, _, uid = text.partition(":")
        return cls(int(validity), int(uid))


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A message without its text."""

    source: bytes
    arrived_at: datetime
    size: int
    is_answered: bool = False


class Mailbox:
    """An open connection to one folder."""

    def __init__(self, client: IMAPClient, access: Access) -> None:
        self._client = client
        self._access = access
        selected = client.select_folder(access.imap.folder, readonly=True)
        self.validity = int(selected[b"UIDVALIDITY"])
        self._has_idle = client.has_capability("IDLE")
        self._searched_end = Position(self.validity, 0)
        self._has_idled = False
        """Whether IDLE was used since the last new message."""

    @property
    def end(self) -> Position:
        """The position behind everything that is in the folder now."""
        status = self._client.folder_status(self._access.imap.folder, ["UIDNEXT"])
        return Position(self.validity, int(status[b"UIDNEXT"]) - 1)

    def find_new(self, since: Position, oldest: datetime) -> list[int]:
        """Return the uids behind a position, oldest first.

        If the folder was replaced, returns all recent ones; known messages are dropped later."""
        end = self.end
        self._has_idled = self._has_idled and end == self._searched_end
        self._searched_end = end
        if since.validity == self.validity:
            found = self._client.search(["UID", f"{since.uid + 1}:*"])
            # The asterisk stands for the last message, even if it is not new.
            return sorted(uid for uid in found if uid > since.uid)
        return sorted(self._client.search(["SINCE", oldest.date()]))

    def headers(self, uid: int) -> Headers | None:
        """Return the headers of a message; None if it is gone."""
        wanted = ["BODY.PEEK[HEADER]", "INTERNALDATE", "RFC822.SIZE", "FLAGS"]
        found = self._client.fetch([uid], wanted).get(uid)
        if not found or b"BODY[HEADER]" not in found:
            return None
        return Headers(
            source=found[b"BODY[HEADER]"],
            arrived_at=found[b"INTERNALDATE"].astimezone(UTC),
            size=int(found[b"RFC822.SIZE"]),
            is_answered=FLAG_ANSWERED in found.get(b"FLAGS", ()),
        )

    def read(self, uid: int, size: int) -> bytes:
        """Return a message, or the beginning of one that is too large."""
        if size <= self._access.limits.mail_bytes:
            return bytes(self._client.fetch([uid], ["BODY.PEEK[]"])[uid][b"BODY[]"])
        found = self._client.fetch([uid], [f"BODY.PEEK[]<0.{BEGINNING}>"])[uid]
        return bytes(found[b"BODY[]<0>"])

    def wait(self, stop: threading.Event) -> None:
        """Wait for a change in the folder, a time limit, or a stop.

        A server reports a message only once, in its answer to any command. So IDLE does not report
        one that came while others were read: compare the end of the folder first."""
        if self.end.uid > self._searched_end.uid:
            return
        if not self._has_idle:
            stop.wait(POLL_EVERY)
            self._client.noop()
            return
        seconds = IDLE_FOR if self._has_idled else FIRST_IDLE_FOR
        self._has_idled = True
        self._client.idle()
        try:
            for _ in range(int(seconds / IDLE_SLICE)):
                if stop.is_set() or self._client.idle_check(timeout=IDLE_SLICE):
                    return
        finally:
            self._client.idle_done()

    @property
    def has_sent_folder(self) -> bool:
        return self._client.find_special_folder(FLAG_SENT) is not None

    def find_sent(self, id: str) -> bool:
        """Return whether the folder of sent messages has one with this Message-ID."""
        folder = self._client.find_special_folder(FLAG_SENT)
        if folder is None:
            return False
        self._client.select_folder(folder, readonly=True)
        return bool(self._client.search(["HEADER", "Message-ID", id]))

    def keep_sent(self, source: bytes) -> bool:
        """Add a message to the folder of sent ones, if there is one."""
        folder = self._client.find_special_folder(FLAG_SENT)
        if folder is not None:
            self._client.append(folder, source, flags=(b"\\Seen",))
        return folder is not None

    def find(self, id: str) -> bytes | str:
        """Return the message with a Message-ID, or the reason why it cannot be had whole."""
        found: Sequence[int] = self._client.search(["HEADER", "Message-ID", id])
        headers = self.headers(found[-1]) if found else None
        if headers is None:
            return "the message is not in the folder any more"
        largest = self._access.limits.mail_bytes
        if headers.size > largest:
            # Its beginning would end in the middle of a file.
            return f"the message {too_large(largest)}"
        return self.read(found[-1], headers.size)


@contextmanager
def open_mailbox(access: Access) -> Iterator[Mailbox]:
    """Open the folder of a mailbox. Raises AccessDenied, IMAPClientError or OSError."""
    server = access.imap
    client = IMAPClient(server.host, server.port, ssl=server.has_tls, timeout=TIMEOUT)
    try:
        if not server.has_tls and not server.is_local:
            client.starttls(ssl.create_default_context())
        try:
            client.login(server.user, server.password)
        except LoginError as error:
            reason = str(error)[:200]
            raise AccessDenied(f"{access.name}: the server refuses the login: {reason}") from None
        yield Mailbox(client, access)
    finally:
        _close(client)


def _close(client: IMAPClient) -> None:
    try:
        client.logout()
    except (IMAPClientError, OSError):
        # The connection is broken already, which leaves the socket open.
        with suppress(OSError):
            client.shutdown()
