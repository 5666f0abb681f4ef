"""[[channels.matrix]]: accounts on Matrix homeservers."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from holdfast.settings.channels.table import ChannelTable
from holdfast.settings.duration import Duration
from holdfast.settings.environment import variable


class Matrix(ChannelTable):
    """A Matrix account. MATRIX_HOMESERVER and MATRIX_ACCESS_TOKEN turn one on without a table."""

    required = ("homeserver_variable", "token_variable")

    homeserver: str = Field(default="", examples=["https://matrix.example.org"])
    """URL of the homeserver; by default the value of `homeserver_variable`."""
    homeserver_variable: str = "MATRIX_HOMESERVER"
    """Environment variable with the URL of the homeserver."""
    token_variable: str = "MATRIX_ACCESS_TOKEN"  # noqa: S105
    """Environment variable with the access token of the bot."""
    status: str = "👀"
    """Reaction on a message while its agent works; empty for none."""
    status_after: Duration = timedelta(seconds=1)
    """Delay before that reaction and the typing notice, so that fast answers show none."""
    edits_per_minute: int = Field(default=10, ge=0)
    """Edits of growing answers that all processes make together; Synapse allows 12 messages a
    minute unless its administrator lifts the limit for the bot. 0 shows none."""
    skip_answered: bool = False
    """After a time without a connection, leave out messages that another person has answered since,
    in their thread or by a reply."""

    def credentials(self) -> tuple[str, str]:
        """Read the variables. Returns the URL and the token."""
        return self.homeserver or variable(self.homeserver_variable), variable(self.token_variable)
