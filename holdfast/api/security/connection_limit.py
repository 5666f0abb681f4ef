"""Limits the connections of a server, and evicts idle ones in favour of new ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.settings.networks import Network, is_in_networks

RESERVE = 64
"""Slots beyond the limit, for health checks and webhooks alone."""

Slot = Literal["arrival", "member", "reserve", "none"]


class Member(Protocol):
    """A connection."""

    @property
    def address(self) -> str:
        """The IP address of its client."""

    def evict(self) -> None:
        """Close it at once."""


@dataclass(slots=True, kw_only=True)
class ConnectionLimit:
    """Assigns slots to connections. While all are taken, a new one evicts an idle one.

    So clients that connect and send nothing, or send very slowly, keep nobody out."""

    most: int
    most_per_client: int
    proxies: tuple[Network, ...] = ()
    reserved_paths: frozenset[str] = frozenset()
    _slots: dict[Member, Slot] = field(default_factory=dict)
    _counts: Counter[Slot] = field(default_factory=Counter)
    _of_client: Counter[str] = field(default_factory=Counter)
    _strangers: dict[Member, None] = field(default_factory=dict)
    _known: dict[Member, None] = field(default_factory=dict)

    @property
    def most_sockets(self) -> int:
        """Maximum number of sockets, including those without a slot."""
        return 2 * self.most + RESERVE

    def arrive(self, member: Member) -> bool:
        """Accept a connection that has no slot yet; False if there are too many."""
        if len(self._slots) >= self.most_sockets:
            return False
        self._slots[member] = "arrival"
        self._counts["arrival"] += 1
        return True

    def admit(self, member: Member) -> bool:
        """Give an arrival a slot, if need be that of an idle one. Returns whether it has one."""
        if self._slots.get(member) == "arrival":
            slot = self._slot_for(member.address)
            self._move(member, slot)
            if slot != "none":
                self._of_client[member.address] += 1
        return self._slots.get(member, "none") != "none"

    def leave(self, member: Member) -> None:
        """Remove the connection from all counts. Leaving twice does nothing."""
        slot = self._slots.pop(member, None)
        if slot is None:
            return
        self._counts[slot] -= 1
        self.works(member)
        if slot in ("member", "reserve"):
            self._of_client[member.address] -= 1
            if not self._of_client[member.address]:
                del self._of_client[member.address]

    def waits(self, member: Member, is_known: bool) -> None:
        """Mark a connection as idle; `is_known` if it had a successful response before."""
        waiting, other = (
            (self._known, self._strangers) if is_known else (self._strangers, self._known)
        )
        if member in self._slots and member not in waiting:
            other.pop(member, None)
            waiting[member] = None

    def works(self, member: Member) -> None:
        """Mark a connection as busy: it is not evicted."""
        self._strangers.pop(member, None)
        self._known.pop(member, None)

    def may_ask(self, member: Member, path: str) -> bool:
        """Whether a connection may request this path.

        A connection of the reserve becomes a member if there is a slot."""
        if not self.admit(member):
            return False
        if self._slots[member] == "member" or path in self.reserved_paths:
            return True
        has_room = self._counts["member"] < self.most or self._evict("member")
        if has_room:
            self._move(member, "member")
        return has_room

    def _move(self, member: Member, slot: Slot) -> None:
        self._counts[self._slots[member]] -= 1
        self._slots[member] = slot
        self._counts[slot] += 1

    def _slot_for(self, address: str) -> Slot:
        if not self._has_slot_for(address):
            return "none"
        if self._counts["member"] < self.most or self._evict("member"):
            return "member"
        if self._counts["reserve"] < RESERVE or self._evict("reserve"):
            return "reserve"
        return "none"

    def _has_slot_for(self, address: str) -> bool:
        return (
            self._of_client[address] < self.most_per_client
            or is_in_networks(address, self.proxies)
            or self._evict("member", address)
            or self._evict("reserve", address)
        )

    def _evict(self, slot: Slot, address: str | None = None) -> bool:
        """Evict the longest idle connection, unknown ones first. Returns whether there was one."""
        for waiting in (self._strangers, self._known):
            for member in waiting:
                if self._slots[member] == slot and address in (None, member.address):
                    self.leave(member)
                    member.evict()
                    return True
        return False
