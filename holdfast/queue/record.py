"""Rows that are kept beside the events, in the transaction that stores or settles them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.message import Payload


class Record:
    """Base class of these rows. The store knows each kind; the queue only passes them on."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Activity(Record):
    """Frames for the event stream, each with its `type`.

    A frame without a `timestamp` gets that of its row."""

    frames: tuple[Payload, ...]
