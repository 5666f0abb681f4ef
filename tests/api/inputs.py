"""Hostile inputs by number: the same seed, kind and number always make the same input."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast.api.security.bootstrap_tokens import Role
from tests.conformance.by_hand import BROKEN_SQLITE_ROWS, ODD_PAYLOADS
from tests.hostile import UNITS

MARKERS = (
    *(
        "\ue0010\ue002",
        "\ue0017\ue002",
        "\ue001",
        "\ue002",
        "[@x: ",
        "[@echo: a]",
        "[#dev: a]",
        "[#dev: ",
        "```",
    ),
    *(
        "[send_file: /etc/passwd]",
        "[send_file: ../token-admin]",
        "<!channel>",
        "<@U0BOT>",
        "<https://a|",
        "&amp;",
    ),
    *(
        "\x00",
        "\x1b[2J",
        "\x7f",
        "\u202e",
        "\ufeff",
        "\u2028",
        "\U0001f600",
        "' or 1=1 --",
        "../",
        "%00",
        "\r\n",
    ),
)
ALL_UNITS = (*UNITS, *MARKERS)
SIZES = (1,) * 8 + (3, 10, 100, 1_000, 4_100, 40_000)
NUMBERS = (
    0,
    1,
    -1,
    7,
    2**31 - 1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e308,
)
FIELDS = (
    *(
        "message",
        "channel",
        "sender",
        "senderId",
        "messageId",
        "agent",
        "metadata",
        "files",
        "originalMessage",
    ),
    *(
        "name",
        "role",
        "channels",
        "agents",
        "expires",
        "limit",
        "before",
        "after",
        "queue",
        "team",
        "q",
        "subject",
    ),
)
METHODS = (
    ("GET",) * 8 + ("POST",) * 8 + ("DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO")
)
EVENT: dict[str, Any] = {
    "token": "fake",
    "team_id": "T0FAKE",
    "api_app_id": "A0FAKE",
    "type": "event_callback",
    "event_id": "Ev1",
    "event_time": 1,
    "authorizations": [{"team_id": "T0FAKE", "user_id": "U0BOT", "is_bot": True}],
    "event": {
        "type": "app_mention",
        "user": "U0ADA",
        "text": "<@U0BOT> hello",
        "ts": "1700000000.000100",
        "channel": "C0GENERAL",
        "event_ts": "1700000000.000100",
        "thread_ts": "1700000000.000100",
        "files": [
            {"id": "F1", "name": "a.txt", "size": 1, "url_private_download": "http://127.0.0.1:1/x"}
        ],
        "blocks": [],
    },
}
COLUMNS = (
    *(
        "queue",
        "target",
        "lane",
        "head",
        "event_ts",
        "attempts",
        "vt",
        "claimed",
        "event",
        "fence",
        "holder",
    ),
    *(
        "message_id",
        "max_attempts",
        "parent_id",
        "root_id",
        "hops",
        "state",
        "last_error",
        "error_class",
    ),
    *("created_at", "updated_at", "sent_by", "traceback", "routed_text", "routed_team"),
)
OTHER_TABLES = {
    "chat_message": ("team_id", "from_agent", "message"),
    "agent_message": ("agent_id", "role", "channel", "sender", "message_id", "content"),
    "activity": ("frames",),
    "setting": ("key", "value"),
    "process": ("id", "host", "started_at", "seen_at"),
}


@dataclass(frozen=True)
class Request:
    """One request over HTTP."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Row:
    """One insert by hand; `is_checked` is False where the shell turned SQLite's checks off."""

    table: str
    values: dict[str, str | None]
    is_checked: bool


class Inputs:
    """Makes the input of one number."""

    def __init__(self, seed: str, kind: str, number: int) -> None:
        self.chance = random.Random(f"{seed}/{kind}/{number}")

    def text(self) -> str:
        """Repeat hostile pieces, mostly few of them and at times very many."""
        choice = self.chance.choice
        size = choice(SIZES)
        if size > 100:
            unit = "".join(choice(ALL_UNITS) for _ in range(choice((1, 1, 2, 3))))
            return unit * (size // len(unit) + 1)
        return "".join(choice(ALL_UNITS) for _ in range(size))

    def short(self) -> str:
        return self.text()[: self.chance.choice((0, 1, 5, 20, 200))]

    def number(self) -> int | float:
        return self.chance.choice(NUMBERS)

    def value(self, depth: int = 0) -> Any:
        """Make any JSON value."""
        kind = self.chance.randrange(10 if depth < 3 else 6)
        if kind < 4:
            return self.text()
        if kind < 6:
            return self.chance.choice((None, True, False, self.number(), [], {}, ""))
        if kind < 8:
            return [self.value(depth + 1) for _ in range(self.chance.randrange(4))]
        return {self.key(): self.value(depth + 1) for _ in range(self.chance.randrange(5))}

    def key(self) -> str:
        return self.chance.choice(FIELDS) if self.chance.random() < 0.8 else self.short()

    def object(self) -> dict[str, Any]:
        """An object that is often nearly a good message."""
        good = {"message": self.text(), "channel": "fuzz", "sender": "Ada"}
        changed = {self.key(): self.value(1) for _ in range(self.chance.randrange(4))}
        return changed if self.chance.random() < 0.3 else good | changed

    def encoded(self, value: Any) -> bytes:
        """Encode a value, at times wrongly."""
        text = json.dumps(value, ensure_ascii=self.chance.random() < 0.7)
        how = self.chance.randrange(30)
        if how == 0:
            return text.encode("utf-16", "surrogatepass")
        if how == 1:
            return text.encode("utf-8", "surrogatepass")[: self.chance.randrange(len(text) + 1)]
        if how == 2:
            return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
        return text.encode("utf-8", "surrogatepass")

    def body(self) -> bytes:
        """A body of a request: mostly JSON, at times garbage, deep or huge."""
        how = self.chance.randrange(60)
        if how == 0:
            return b'{"message":' + b"[" * self.chance.choice((70, 1_000, 100_000))
        if how == 1:
            return b'{"message": "' + b"x" * self.chance.choice((1_000_000, 1_100_000)) + b'"}'
        if how < 5:
            return self.chance.randbytes(self.chance.randrange(300))
        if how < 9:
            return self.encoded(self.value())
        return self.encoded(self.object())

    def request(self, operations: list[tuple[str, str]], tokens: dict[Role, str]) -> Request:
        """A request for one of the operations, or for nothing that there is."""
        method, path = self.chance.choice(operations)
        if self.chance.random() < 0.2:
            method = self.chance.choice(METHODS)
        if self.chance.random() < 0.05:
            path = f"/{quote(_valid(self.short()))}"
        while "{" in path:
            before, _, rest = path.partition("{")
            path = before + self.segment() + rest.partition("}")[2]
        body = b"" if method in ("GET", "HEAD") and self.chance.random() < 0.9 else self.body()
        return Request(method, path + self.query(), self.headers(tokens), body)

    def segment(self) -> str:
        known = ("1", "2", "100", "0", "-1", "9" * 30, "echo", "dev", "slack:1", "%ff", "%00", "..")
        if self.chance.random() < 0.7:
            return self.chance.choice(known)
        return quote(_valid(self.short()), safe="") or "x"

    def query(self) -> str:
        if self.chance.random() < 0.6:
            return ""
        pairs = [
            f"{quote(_valid(self.key()))}={self.segment()}" for _ in range(self.chance.randrange(4))
        ]
        return "?" + "&".join(pairs)

    def headers(self, tokens: dict[Role, str]) -> dict[str, str]:
        chance = self.chance
        given = chance.choice(
            [tokens["admin"]] * 4 + [tokens["send"], tokens["send"], tokens["read"], "wrong"]
        )
        headers = {"authorization": f"Bearer {given}"} if chance.random() < 0.95 else {}
        odd = _printable(self.short())
        others = {
            "authorization": chance.choice((odd, f"Bearer {odd}", "Basic YTpi", "Bearer")),
            "cookie": chance.choice(
                (f"session={odd}", f"holdfast={odd}", f"__Host-holdfast={odd}", ";;=;", odd)
            ),
            "content-type": chance.choice(
                ("application/json", "text/plain", "multipart/form-data", odd)
            ),
            "content-encoding": "gzip",
            "origin": chance.choice(("null", "https://evil.example.com", odd)),
            "host": chance.choice(("evil.example.com", odd or "x")),
            "last-event-id": chance.choice(("1", "-1", "9" * 40, odd)),
            "x-forwarded-for": odd,
            "accept": odd,
            "if-none-match": odd,
        }
        for name in chance.sample(sorted(others), chance.choice((0, 0, 0, 0, 0, 0, 1, 2))):
            headers[name] = others[name]
        return headers

    def slack_body(self) -> bytes:
        """An event of Slack in which parts were left out or replaced."""
        if self.chance.random() < 0.2:
            return self.body()
        event = json.loads(json.dumps(EVENT))
        event["event"]["ts"] = (
            f"17{self.chance.randrange(10**8):08d}.{self.chance.randrange(10**6):06d}"
        )
        event["event"]["text"] = f"<@U0BOT> {self.text()}"
        for _ in range(self.chance.randrange(4)):
            fields = self.chance.choice(
                (event, event["event"]) if isinstance(event.get("event"), dict) else (event,)
            )
            name = self.chance.choice(
                [*fields, "bot_id", "subtype", "payload", "command", "challenge"]
            )
            if self.chance.random() < 0.3:
                fields.pop(name, None)
            else:
                fields[name] = self.value(1)
        return self.encoded(event)

    def row(self) -> Row:
        """A row as somebody writes it by hand."""
        is_checked = self.chance.random() < 0.5
        if self.chance.random() < 0.15:
            table = self.chance.choice(sorted(OTHER_TABLES))
            return Row(table, {name: self.cell(name) for name in OTHER_TABLES[table]}, is_checked)
        values: dict[str, str | None] = {"event": json.dumps({"text": self.text()})}
        for name in self.chance.sample(COLUMNS, self.chance.randrange(1, 6)):
            values[name] = self.cell(name)
        if self.chance.random() < 0.3:
            odd = self.chance.choice([*ODD_PAYLOADS.values(), *BROKEN_SQLITE_ROWS.values()])
            values |= {
                name: cell[1:-1]
                for name, cell in odd.items()
                if cell.endswith("'") and "||" not in cell
            }
        return Row("event", values, is_checked)

    def cell(self, name: str) -> str | None:
        """A cell that fits its column well, badly or not at all."""
        chance = self.chance
        fitting: dict[str, tuple[str | None, ...]] = {
            "queue": ("inbox", "inbox", "outbox", "memory", ""),
            "target": ("", "echo", "parrot", "slack", "api", "fuzz"),
            "claimed": ("[]", "{}", "[1]", "[null]", "{NULL}", "{infinity}"),
            "event": (
                "null",
                "[1]",
                "{}",
                '{"kind": 1}',
                '{"text": null}',
                json.dumps(self.value()),
            ),
            "state": ("{}", "[1]", "null", '{"parts": 1}', json.dumps(self.value())),
            "frames": ("[]", "{}", "[1]", "[null]", '[{"type": 1}]', json.dumps(self.value())),
            "role": ("user", "assistant"),
        }
        numbers = (str(self.number()), str(chance.randrange(6)), str(chance.randrange(2**50)))
        moments = (
            "infinity",
            "-infinity",
            "10000-01-01",
            "4000-01-01 BC",
            "2024-01-01",
            "now",
            *numbers,
        )
        if name.endswith(("_ts", "_at", "vt")):
            fitting[name] = moments
        elif name.endswith(("_id", "attempts", "hops", "fence", "head")):
            fitting[name] = numbers
        how = chance.randrange(10)
        if how < 8:
            return chance.choice(fitting.get(name, (_valid(self.text()),)))
        return None if how == 8 else _valid(self.text())

    def raw(self, port: int, token: str) -> bytes:
        """Bytes of a broken request, perhaps with another hidden behind it."""
        chance = self.chance
        if chance.random() < 0.2:
            return chance.randbytes(chance.randrange(1, 2_000))
        body = self.body()[:70_000]
        method = chance.choice((*METHODS, "get", "G T", ""))
        target = chance.choice(
            ("/api/message", "/healthz", "*", "http://x/", "//", "/\xff", "/" + "a" * 9_000)
        )
        version = chance.choice(
            ("HTTP/1.1",) * 6 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9", "http/1.1", "")
        )
        lines = [
            f"{method} {target} {version}",
            f"host: 127.0.0.1:{port}",
            f"authorization: Bearer {token}",
        ]
        lines += chance.sample(_odd_headers(len(body), self.short()), chance.randrange(4))
        if chance.random() < 0.1:
            chance.shuffle(lines)
        end = chance.choice(("\r\n",) * 5 + ("\n", "\r", "\n\r"))
        whole = (end.join(lines) + end + end).encode("utf-8", "surrogatepass") + body
        if chance.random() < 0.3:
            whole += (
                f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
                * chance.randrange(1, 4)
            )
        return whole[: chance.randrange(1, len(whole))] if chance.random() < 0.3 else whole


def _odd_headers(length: int, odd: str) -> list[str]:
    return [
        f"content-length: {length}",
        f"content-length: {length}",
        *(
            "content-length: -1",
            "content-length: +5",
            "content-length: 5, 5",
            f"content-length: {10**30}",
        ),
        *(
            "transfer-encoding: chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: xchunked",
        ),
        *(
            "connection: close",
            "connection: upgrade\r\nupgrade: websocket",
            "expect: 100-continue",
            "host: b",
        ),
        *(
            "no colon",
            ": empty",
            " folded",
            f"x: {odd}",
            f"{odd}: x",
            "x: " + "y" * 70_000,
            "cookie: a=b; c",
        ),
    ]


def _valid(text: str) -> str:
    """The text without what no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def _printable(text: str) -> str:
    """The text as a header that the client is willing to send."""
    return "".join(sign for sign in _valid(text) if sign >= " " and sign != "\x7f")
