"""A support inbox: answers where orders are, pays small amounts back, and asks staff about others.

What is paid is paid once, whatever is killed in between."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from holdfast import AgentHarness, NotDone, Turn
from holdfast.errors import HoldfastError

app = AgentHarness(default="support")

ORDERS, PAYMENTS = Path("orders.toml"), Path("payments.csv")
SMALL_AMOUNT = 50
LONGEST_WAIT = "2 days"
STAFF_CHANNELS = ("web", "api")
"""Channels that only staff can use. Customers write e-mail."""


class Order(BaseModel):
    """An order of the shop."""

    customer: str
    state: str
    euros: int


def find_order(text: str) -> tuple[str, Order] | None:
    """Return the first order whose number stands in a text."""
    orders = TypeAdapter(dict[str, Order]).validate_python(tomllib.loads(ORDERS.read_text()))
    numbers = re.findall(r"\b\d{4}\b", text)
    return next(((number, orders[number]) for number in numbers if number in orders), None)


@app.agent("support", name="Support", while_waiting="release")
async def support(turn: Turn) -> str:
    """Answer a customer."""
    found = await turn.step("find order", find_order, turn.text)
    if found is None or not is_theirs(turn, found[1]):
        return "Which order is this about? Please write its number, from the address you used."
    number, order = found
    if "refund" not in turn.text.lower():
        return f"Order {number} is {order.state}."
    if order.euros > SMALL_AMOUNT and not await is_approved(turn):
        return f"We cannot pay order {number} back. A colleague will write to you."
    payment = await turn.step(
        "pay back", pay_back, number, order.euros, effect="once", probe=was_paid_back
    )
    files = await turn.files()
    thanks = f" Thank you for the pictures ({len(files)})." if files else ""
    return f"We paid {order.euros} euros back for order {number} ({payment}).{thanks}"


def is_theirs(turn: Turn, order: Order) -> bool:
    """Return whether the customer wrote it. Staff may ask about every order."""
    return turn.channel in STAFF_CHANNELS or turn.sender_id == order.customer


async def is_approved(turn: Turn) -> bool:
    """Wait for a colleague, without holding a worker. Nobody's answer is a no."""
    try:
        return bool(await turn.signal("refund", timeout=LONGEST_WAIT) == "approve")
    except TimeoutError:
        return False


def pay_back(number: str, euros: int) -> str:
    """Pay, by a line in a file; a real shop calls its bank here."""
    payment = f"R-{number}"
    with PAYMENTS.open("a") as file:
        file.write(f"{payment},{euros}\n")
    return payment


def was_paid_back(number: str, euros: int) -> str:
    """Look whether a payment happened whose worker died before it could record it."""
    payment = f"R-{number}"
    if not PAYMENTS.exists() or f"{payment},{euros}" not in PAYMENTS.read_text().splitlines():
        raise NotDone(f"{payment} is not in {PAYMENTS}")
    return payment


@app.agent("staff", name="Staff")
async def staff(turn: Turn) -> str:
    """Take decisions of colleagues: `approve MESSAGE` or `refuse MESSAGE`."""
    if turn.channel not in STAFF_CHANNELS:
        return "This is for staff alone."
    decision = re.fullmatch(r"(approve|refuse) (\S+)", turn.text.strip())
    if decision is None:
        return "Say `approve ID` or `refuse ID`; the console lists the messages that wait."
    try:
        await app.signal(decision[2], "refund", decision[1], actor=turn.sender)
    except HoldfastError as error:
        return f"That is not possible: {error}."
    return f"{decision[2]} goes on."
