"""Channels, one module or package for each platform, and how settings turn them on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.telemetry import CHANNEL_INCOMPLETE, CHANNEL_REFUSED
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import redact

if TYPE_CHECKING:
    from holdfast.channels.base import Channel, Put
    from holdfast.queue.store import Store
    from holdfast.settings import Settings
    from holdfast.settings.channels.table import PlatformTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Arguments of a channel's factory, beside its tables."""

    settings: Settings
    store: Store
    app_token: str | None = None
    """Slack's app-level token, if the app gave it to `run`."""


Factory = Callable[[Setup, Sequence[Any]], "Channel | None"]
"""Builds a channel from its tables of settings; None if they leave it off.

A built-in channel gets tables of its own class, and only if there is one or its variables are set.
A channel of another package gets dictionaries: none if the settings have no table for it."""


def _slack() -> Factory:
    from holdfast.channels.slack.factory import slack_channel

    return slack_channel


def _matrix() -> Factory:
    from holdfast.channels.matrix.factory import matrix_channel

    return matrix_channel


def _discord() -> Factory:
    from holdfast.channels.discord.factory import discord_channel

    return discord_channel


def _telegram() -> Factory:
    from holdfast.channels.telegram.factory import telegram_channel

    return telegram_channel


def _whatsapp() -> Factory:
    from holdfast.channels.whatsapp.factory import whatsapp_channel

    return whatsapp_channel


def _email() -> Factory:
    from holdfast.channels.email.factory import email_channel

    return email_channel


# Imported on demand, so that a process does not pay for platforms that it does not use.
BUILT_IN: Mapping[str, tuple[str, Callable[[], Factory]]] = {
    "slack": ("Slack", _slack),
    "matrix": ("Matrix", _matrix),
    "discord": ("Discord", _discord),
    "email": ("E-mail", _email),
    "telegram": ("Telegram", _telegram),
    "whatsapp": ("WhatsApp", _whatsapp),
}
"""Built-in channels: the name is that of the settings and of the extra."""


def configured_channels(
    settings: Settings, store: Store, given: Collection[str] = (), app_token: str | None = None
) -> Iterator[Channel]:
    """Yield the channels of settings and environment, except those that were given already."""
    from holdfast.settings.extras import require

    setup = Setup(settings=settings, store=store, app_token=app_token)
    for name, (title, factory) in BUILT_IN.items():
        tables = _wanted_tables(settings, name, app_token)
        if tables and name not in given:
            require(name, title)
            channel = factory()(setup, tables)
            if channel is not None:
                yield channel
    yield from _installed_channels(setup, given)


def is_wanted(settings: Settings, name: str) -> bool:
    """Return whether a built-in channel is turned on, or some of its variables are set."""
    return bool(_wanted_tables(settings, name)) or name in incomplete_channels(())


def _wanted_tables(
    settings: Settings, name: str, app_token: str | None = None
) -> Sequence[PlatformTable]:
    """Return the tables of a built-in channel; one of defaults if its variables turn it on."""
    tables: Sequence[PlatformTable] = getattr(settings.channels, name)
    default = _default_table(name)
    is_on = default.is_set or (name == "slack" and app_token)
    return tables or ((default,) if is_on else ())


def problems_of(channels: Mapping[str, Channel]) -> dict[str, str]:
    """Return the problems of a process's channels, by name, without secrets."""
    problems = {name: list(channel.problems) for name, channel in channels.items()}
    problems |= {name: [why] for name, why in incomplete_channels(channels).items()}
    return {name: redact("; ".join(texts)) for name, texts in problems.items() if texts}


def incomplete_channels(known: Collection[str]) -> dict[str, str]:
    """Return why channels are off although some of their variables are set, by name.

    Channels that are known already are left out."""
    reasons = {
        name: _default_table(name).explain_off(title)
        for name, (title, _) in BUILT_IN.items()
        if name not in known
    }
    return {name: reason for name, reason in reasons.items() if reason}


def log_incomplete(known: Mapping[str, Channel]) -> None:
    """Log which channels cannot work fully, or are off, because a variable is not set."""
    problems = [problem for channel in known.values() for problem in channel.problems]
    for problem in [*problems, *incomplete_channels(known).values()]:
        log.warning(Entry(CHANNEL_INCOMPLETE, problem=problem))


def receiving(
    known: Mapping[str, Channel], put: Put, *, webhooks_only: bool = False, is_alone: bool = False
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield one coroutine for each channel, which receives messages until cancelled.

    If a platform refuses its channel, this is logged and the others go on. With `is_alone` (the
    process serves no HTTP), a refused channel is an error if it is the only one, since no other
    messages could come in. Every process has schedules, so they do not count."""
    platforms = [channel for channel in known.values() if not channel.is_internal]
    for channel in known.values():
        task = channel.run_webhooks(put) if webhooks_only else channel.run(put)
        is_only = is_alone and platforms == [channel]
        yield task if is_only else _outlast_refusal(channel, task)


async def _outlast_refusal(channel: Channel, task: Awaitable[None]) -> None:
    try:
        await task
    except* HoldfastError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        log.error(Entry(CHANNEL_REFUSED, channel=channel.name, error=error))


def _default_table(name: str) -> PlatformTable:
    from holdfast.settings.channels import Channels
    from holdfast.settings.table import tables_in

    [table] = tables_in(Channels.model_fields[name])
    return table()  # type: ignore[return-value]


def _installed_channels(setup: Setup, given: Collection[str]) -> Iterator[Channel]:
    """Yield the channels of other packages, found by their entry points."""
    from holdfast.channels.base import as_channel
    from holdfast.settings.channels import installed_channels

    for name, entry_point in installed_channels().items():
        if name in given:
            continue
        if name in BUILT_IN:
            raise HoldfastError(
                f"the package of {entry_point.value} names its channel {name}, which is built in"
            )
        try:
            factory: Factory = entry_point.load()
        except Exception as error:
            raise HoldfastError(
                f"the installed channel {name} ({entry_point.value}) cannot be loaded: {error}"
            ) from error
        channel = factory(setup, setup.settings.channels.installed.get(name, ()))
        if channel is not None:
            yield as_channel(channel)
