"""Errors that Holdfast raises on purpose: one root, and a class where callers act differently."""


class HoldfastError(Exception):
    """Holdfast refused or failed; the message says what happened and what to do."""


class WrongUsage(HoldfastError):
    """An option of a command has an invalid value."""


class LeaseLost(HoldfastError):
    """Another worker owns this turn now; drop the work."""


class Unknown(HoldfastError):
    """There is no agent or team of that name."""


class NewDatabase(HoldfastError):
    """The database has no tables of Holdfast yet."""


class StoreUnavailable(HoldfastError):
    """The database cannot be reached right now; the call may be tried again."""


class Unreadable(HoldfastError):
    """A stored event cannot be read; it becomes a dead letter with this class of error."""


class MigrationError(HoldfastError):
    """The database cannot be migrated to this version; nothing was changed."""


class StepError(HoldfastError):
    """A step, a wait or a write of a turn was used wrongly; the message names it."""


class EffectUnknown(HoldfastError):
    """A once-step may have happened in an earlier attempt; a person has to find out."""


class NotDone(HoldfastError):
    """Raised by the probe of a once-step: its effect did not happen, so it can run."""
