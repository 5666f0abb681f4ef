"""Every error Holdfast raises on purpose has one root, and a class only where a caller acts differently."""


class HoldfastError(Exception):
    """Something Holdfast refuses or could not do; the message says what happened and what to do."""


class WrongUsage(HoldfastError):
    """An option of a command has a value that it cannot have."""


class LeaseLost(HoldfastError):
    """Another worker owns this turn now; drop the work."""


class Unknown(HoldfastError):
    """There is no agent or team of that name."""


class NewDatabase(HoldfastError):
    """There is nothing of ours in it yet."""


class StoreUnavailable(HoldfastError):
    """The database cannot be reached right now; what was asked may be tried again."""


class Unreadable(HoldfastError):
    """A stored event that cannot be read; it ends as a dead letter with this class of error."""


class MigrationError(HoldfastError):
    """The database cannot be brought to this version; nothing was changed."""
