"""Keys that the tables of all chat platforms share."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from holdfast.settings.environment import variable
from holdfast.settings.table import Table

Pairing = Literal["code", "open", "closed"]


class PlatformTable(Table):
    """An account on a platform. Without any table, the variables of the platform turn it on."""

    # Fields that name variables without which the channel is off.
    required: ClassVar[tuple[str, ...]] = ()

    @property
    def is_set(self) -> bool:
        """Whether all required variables are set."""
        return not self._missing()

    def explain_off(self, title: str) -> str | None:
        """Return why the platform is off although some of its variables are set, else None."""
        fields = [name for name in type(self).model_fields if name.endswith("_variable")]
        found = [getattr(self, name) for name in fields if variable(getattr(self, name))]
        if not found or self.is_set:
            return None
        missing = " and ".join(self._missing())
        return f"{' and '.join(found)} set without {missing}, so {title} is off; set {missing}, too"

    def _missing(self) -> list[str]:
        names = [str(getattr(self, field)) for field in self.required]
        return [name for name in names if not variable(name)]


class ChannelTable(PlatformTable):
    """An account on a platform whose users are strangers."""

    pairing: Pairing | None = Field(default=None, examples=["open"])
    """How strangers get in: "code", "open" or "closed"; by default as the global setting."""
    allow: tuple[str, ...] = ()
    """Ids of people who need no pairing; *@example.org stands for all of a domain. With pairing
    "open" and a list, only these are answered."""
    deny: tuple[str, ...] = ()
    """Ids of people to ignore, or domains as *@example.org."""
    allow_groups: tuple[str, ...] = ()
    """Ids of the groups to listen in exclusively, by default all. Their members need no pairing."""
    deny_groups: tuple[str, ...] = ()
    """Ids of groups to ignore."""
    bots: bool = False
    """Answer other bots, too; at most ten times in ten minutes unless a person writes."""
    groups: Literal["mention", "all"] = "mention"
    """Messages to answer in groups: those that mention the bot, or all."""
