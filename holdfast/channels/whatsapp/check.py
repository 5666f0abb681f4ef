"""Checks of a number for `holdfast doctor`: its token and what verifies its webhook."""

from __future__ import annotations

import asyncio

from holdfast.channels.base import Check
from holdfast.channels.whatsapp.access import Access
from holdfast.channels.whatsapp.client import PhoneNumber
from holdfast.errors import HoldfastError

CHECK_WITHIN = 10
"""Seconds for all requests."""


async def check(access: Access) -> list[Check]:
    """Check one number."""
    number = PhoneNumber(access)
    try:
        async with asyncio.timeout(CHECK_WITHIN), number.open():
            found = await number.describe()
    except (HoldfastError, TimeoutError) as error:
        reason = str(error) or "WhatsApp does not answer"
        return [Check("WhatsApp", "fail", f"{access.name}: {reason}")]
    shown = found.get("display_phone_number") or access.phone_number_id
    return [
        Check("WhatsApp", "ok", f"the number is {shown} ({found.get('verified_name') or '?'})"),
        _webhook(access),
    ]


def _webhook(access: Access) -> Check:
    name = "WhatsApp webhook"
    if not access.app_secret:
        return Check(name, "fail", "the app secret is not set, so no messages come in")
    if not access.verify_token:
        return Check(name, "warn", "the verify token is not set, so Meta cannot verify the webhook")
    return Check(name, "ok", "signed messages come to /whatsapp/webhook")
