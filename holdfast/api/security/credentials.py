"""Issues and revokes tokens, sessions and login codes, for the API and the commands."""

from __future__ import annotations

import re
import secrets
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta

from holdfast.api.security.bootstrap_tokens import digest_of
from holdfast.api.security.caller import PREFIXES
from holdfast.errors import HoldfastError
from holdfast.queue.audit import AuditEntry
from holdfast.queue.store import Store
from holdfast.store.credentials import Credential, Kind, Role, open_credentials

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,99}")
LONGEST_LIFE = timedelta(days=36_500)
CODE_LIFE = timedelta(minutes=15)


class NameTaken(HoldfastError):
    """There is a token of this name."""


class InvalidGrant(HoldfastError):
    """The rights of a token contradict each other, or its name cannot be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Rights of a token, a session or a login code."""

    name: str
    role: Role
    channels: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    sender: str | None = None
    owner: str | None = None

    @classmethod
    def of(cls, credential: Credential) -> Grant:
        """Copy the rights of a credential: a session has those of its code."""
        return cls(**{one.name: getattr(credential, one.name) for one in fields(cls)})


def check_grant(grant: Grant, life: timedelta | None) -> None:
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
        raise InvalidGrant("a token cannot be bound to an empty list or name; leave it out instead")
    if life is not None and not timedelta(0) < life <= LONGEST_LIFE:
        raise InvalidGrant("a token expires after more than 0 seconds and at most 100 years")


async def create_token(
    store: Store, grant: Grant, life: timedelta | None, actor: str
) -> tuple[str, Credential]:
    """Store a token and write to the audit log. Returns its secret, which is not stored."""
    check_grant(grant, life)
    secret, token = await issue(store, "token", grant, life)
    details = {"role": token.role, "id": token.id}
    await store.audit(
        AuditEntry(
            actor=actor, action="token_created", subject=f"token:{token.name}", details=details
        )
    )
    return secret, token


async def revoke_token(store: Store, name: str, actor: str) -> bool:
    """Delete a token with its sessions and write to the audit log. False if there is none."""
    revoked = await open_credentials(store).revoke(name)
    if revoked is not None:
        details = {"id": revoked.id}
        await store.audit(
            AuditEntry(
                actor=actor, action="token_revoked", subject=f"token:{name}", details=details
            )
        )
    return revoked is not None


async def issue(
    store: Store, kind: Kind, grant: Grant, life: timedelta | None
) -> tuple[str, Credential]:
    """Store a credential. Returns its secret, which is not stored, and the credential."""
    secret = f"{PREFIXES[kind]}{secrets.token_urlsafe(32)}"
    now = await store.now()
    credential = _credential(kind, grant, now, None if life is None else now + life)
    if not await open_credentials(store).add(credential, digest_of(secret)):
        raise NameTaken(
            f"there is already a token named {grant.name!r}; revoke it first or choose another name"
        )
    return secret, credential


def _credential(kind: Kind, grant: Grant, now: datetime, expires_at: datetime | None) -> Credential:
    id_ = f"{kind}_{secrets.token_hex(8)}"
    rights = asdict(grant) | {"owner": id_ if kind == "token" else grant.owner}
    return Credential(id=id_, kind=kind, created_at=now, expires_at=expires_at, **rights)


async def login_link(store: Store, address: str, grant: Grant, life: timedelta = CODE_LIFE) -> str:
    """Return a link that opens one session, within 15 minutes."""
    code, _ = await issue(store, "code", grant, life)
    return f"{address}/login?code={code}"
