"""Creating and revoking tokens of people and programs; by command and by API alike."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.api.security.caller import Grant, issue
from holdfast.errors import HoldfastError
from holdfast.queue.audit import AuditEntry
from holdfast.queue.store import Store
from holdfast.store.credentials import Credential, open_credentials

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,99}")
LONGEST_LIFE = timedelta(days=36_500)


class InvalidGrant(HoldfastError):
    """The rights of a token contradict each other, or its name cannot be one."""


def checked(grant: Grant, life: timedelta | None) -> None:
    """Raise InvalidGrant unless a token can have these rights."""
    if not NAME.fullmatch(grant.name):
        raise InvalidGrant(
            "a token's name has 1 to 100 letters, digits, spaces or . _ @ + -, and begins with one"
        )
    if grant.role == "admin" and (grant.channels, grant.agents, grant.sender) != (None, None, None):
        raise InvalidGrant(
            "a token of role admin may do everything and cannot be bound; give it role read or send"
        )
    if grant.role == "read" and grant.sender is not None:
        raise InvalidGrant(
            "a token of role read sends nothing and cannot be bound to a sender; give it role send"
        )
    if () in (grant.channels, grant.agents) or grant.sender == "":
        raise InvalidGrant("what a token is bound to cannot be empty; leave it out instead")
    if life is not None and not timedelta(0) < life <= LONGEST_LIFE:
        raise InvalidGrant("a token expires after more than 0 seconds and at most 100 years")


async def create_token(
    store: Store, grant: Grant, life: timedelta | None, actor: str
) -> tuple[str, Credential]:
    """Store a token and note it in the audit log. Returns its secret, which is kept nowhere."""
    checked(grant, life)
    secret, token = await issue(store, "token", grant, life)
    details = {"role": token.role, "id": token.id}
    await store.audit(
        AuditEntry(
            actor=actor, action="token_created", subject=f"token:{token.name}", details=details
        )
    )
    return secret, token


async def revoke_token(store: Store, name: str, actor: str) -> bool:
    """Delete a token with its sessions and note it in the audit log. False if there is none of this name."""
    revoked = await open_credentials(store).revoke(name)
    if revoked is not None:
        details = {"id": revoked.id}
        await store.audit(
            AuditEntry(
                actor=actor, action="token_revoked", subject=f"token:{name}", details=details
            )
        )
    return revoked is not None
