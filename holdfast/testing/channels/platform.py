"""A platform as the channel contract needs it: one conversation, and faults on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from holdfast.app import AgentHarness
from holdfast.testing.harness import until


class Platform(ABC):
    """One conversation of a person whom the channel admits, on a server of the test.

    A platform without a feature sets its flag to False; the test is skipped then, with the name of
    the flag. A platform with it defines the methods named in the comment."""

    name: str
    """Name of the channel."""
    limit: int = 4000
    """Maximum number of characters of one message."""
    largest_file: int | None = None
    """Size in bytes of the largest file that the channel fetches; None skips the test of it."""
    largest_upload: int | None = None
    """Size in bytes of the largest file that the channel sends; None skips the test of it."""

    is_pushed: bool = True
    """Whether the channel delivers answers; False if clients fetch them."""
    can_redeliver: bool = True  # say_again
    can_acknowledge: bool = True  # is_acknowledged
    can_edit: bool = True  # edit
    can_delete: bool = True  # delete
    can_send_files: bool = True  # files
    can_receive_files: bool = True  # send_file
    can_show_typing: bool = True  # was_typing
    can_show_growth: bool = True  # answers show a text that is not complete yet
    can_limit: bool = True  # limit_next
    can_refuse: bool = True  # refuse_next
    can_look_up: bool = True  # lose_next_answer
    can_disconnect: bool = True  # disconnect
    can_go_away: bool = False  # go_away, come_back
    can_revoke: bool = True  # revoke_token
    has_strangers: bool = True  # say_as_stranger, answers_to_stranger
    has_groups: bool = True  # say_unaddressed
    has_bots: bool = True  # say_as_bot

    def prepare(self, app: AgentHarness) -> None:
        """Add the channel to an app before it runs, unless the environment turns it on."""
        return

    @abstractmethod
    async def say(self, text: str) -> str:
        """Write a message to the bot. Returns the platform's id of it."""

    @abstractmethod
    async def answers(self) -> list[str]:
        """Return the texts of the bot's messages in the conversation now, oldest first."""

    async def visible(self, count: int) -> list[str]:
        """Wait for at least `count` messages of the bot. Returns all."""

        async def enough() -> list[str]:
            found = await self.answers()
            return found if len(found) >= count else []

        found: list[str] = await until(enough)
        return found

    async def say_again(self, message: str) -> None:
        """Deliver a message once more. Returns once the channel has taken it."""
        raise NotImplementedError

    async def is_acknowledged(self, message: str) -> bool:
        """Return whether the platform will not deliver a message again by itself."""
        raise NotImplementedError

    async def edit(self, message: str, text: str) -> None:
        """Change the text of a message."""
        raise NotImplementedError

    async def delete(self, message: str) -> None:
        """Delete a message."""
        raise NotImplementedError

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        """Write a message with a file. Returns the platform's id of it."""
        raise NotImplementedError

    async def files(self) -> Mapping[str, bytes]:
        """Return the files that the bot has sent, by name."""
        raise NotImplementedError

    async def was_typing(self) -> bool:
        """Return whether the bot has shown that it works on the last message."""
        raise NotImplementedError

    async def say_as_stranger(self, text: str) -> None:
        """Write to the bot as a person who is on no list, in a conversation of their own."""
        raise NotImplementedError

    async def answers_to_stranger(self) -> list[str]:
        """Return the texts of the bot's messages to the stranger now, oldest first."""
        raise NotImplementedError

    async def say_unaddressed(self, text: str) -> None:
        """Write to a group of the bot without a mention, as the person of the conversation."""
        raise NotImplementedError

    async def say_as_bot(self, text: str) -> None:
        """Write to the bot as another bot, in the conversation."""
        raise NotImplementedError

    async def limit_next(self, seconds: int) -> None:
        """Answer the next message of the bot by asking to wait."""
        raise NotImplementedError

    async def refuse_next(self) -> str:
        """Refuse the next message of the bot for good. Returns the platform's error code."""
        raise NotImplementedError

    async def lose_next_answer(self) -> None:
        """Take the next message of the bot, but break the connection before answering."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Break the connection by which messages come in. The platform stays reachable."""
        raise NotImplementedError

    async def go_away(self) -> None:
        """Break all connections, and refuse new ones until `come_back`."""
        raise NotImplementedError

    async def come_back(self) -> None:
        """Be reachable again."""
        raise NotImplementedError

    async def revoke_token(self) -> None:
        """Refuse the credentials of the bot from now on."""
        raise NotImplementedError
