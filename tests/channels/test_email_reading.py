"""Reading messages without a server: threads, texts, automatic mail and forged senders."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage

import pytest

from holdfast.channels.email.access import Access, Server, server_of
from holdfast.channels.email.incoming import Incoming, parse
from holdfast.channels.email.outgoing import OutgoingMail, compose, message_id, send
from holdfast.channels.email.text import html_text, text_of, without_quotation
from holdfast.errors import HoldfastError

BOT = "bot@example.test"


def incoming(*headers: str, body: str = "hello") -> Incoming:
    source = "\r\n".join(["From: Ada <Ada@Example.test>", *headers, "", body])
    return Incoming(parse(source.encode()), BOT)


def test_the_first_reference_names_the_thread_and_our_own_id_brings_it_back() -> None:
    first = incoming("Message-ID: <1@a>")
    later = incoming("Message-ID: <3@a>", "References: <1@a> <2@a>", "In-Reply-To: <2@a>")
    ours = message_id("key", first.conversation, BOT)
    answer = incoming("Message-ID: <4@a>", f"In-Reply-To: {ours}")
    assert first.conversation == later.conversation == answer.conversation
    assert incoming("Message-ID: <5@a>").conversation != first.conversation
    assert first.message_id == f"email_{BOT}_<1@a>"
    assert (first.sender, first.name) == ("ada@example.test", "Ada")


def test_a_message_without_an_id_gets_one_from_its_headers() -> None:
    one, two = incoming("Date: a", "Subject: x"), incoming("Date: a", "Subject: x")
    assert one.id == two.id != incoming("Date: b", "Subject: x").id
    assert len(incoming(f"Message-ID: <{'x' * 800}@a>").message_id) < 300


@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-generated; owner-email=x",
        "Precedence: LIST",
        "List-Unsubscribe: <mailto:x@example.test>",
        "Return-Path: <>",
    ],
)
def test_automatic_mail_is_known_by_its_headers(header: str) -> None:
    assert incoming(header).is_automatic
    assert not incoming("Auto-Submitted: no").is_automatic


def test_only_the_newest_authentication_result_of_our_server_counts() -> None:
    good = "Authentication-Results: mx.example.test; spf=pass; dmarc=pass header.from=example.test"
    forged = "Authentication-Results: mx.example.test; dmarc=pass"
    failed = "Authentication-Results: mx.example.test; dmarc=fail"
    assert incoming(good).is_authentic("mx.example.test")
    assert not incoming(failed, forged).is_authentic("mx.example.test")
    assert not incoming(good).is_authentic("mx.other.test")
    assert not incoming().is_authentic("mx.example.test")


def test_plain_text_is_preferred_and_html_becomes_text() -> None:
    message = EmailMessage()
    message.set_content("plain")
    message.add_alternative("<p>rich</p>", subtype="html")
    assert text_of(message) == "plain"
    html = "<head><title>no</title></head><p>One &amp; <b>two</b></p><script>no</script><br>three"
    assert html_text(html) == "One & two\nthree"


def test_letters_that_change_their_length_in_lower_case_show_no_hidden_text() -> None:
    assert html_text("İ" * 9 + "<SCRIPT>no</Script><P>yes<style>no</style>") == "İ" * 9 + "\nyes"


@pytest.mark.parametrize(
    "parameter", ["text/plain; charset*", "text/plain; name*", "Text/Plain; a=b; c*"]
)
def test_a_type_that_the_standard_library_cannot_parse_hides_no_text(parameter: str) -> None:
    assert incoming(f"Content-Type: {parameter}").event.event["message"] == "hello"


@pytest.mark.parametrize("value", ["attachment; filename*", "attachment; filename*; size=3"])
def test_a_file_whose_name_cannot_be_parsed_is_listed(value: str) -> None:
    parts = "--b\r\n\r\nhello\r\n--b\r\nContent-Disposition: {}\r\n\r\nfile\r\n--b--"
    event = incoming("Content-Type: multipart/mixed; boundary=b", body=parts.format(value)).event
    assert event.event["message"] == "hello"
    assert event.event["attachments"] == ["file"]


def test_a_quotation_at_the_end_is_left_out() -> None:
    assert without_quotation("yes\n\nOn Monday, bot wrote:\n> may I?\n> please") == "yes"
    assert without_quotation("> first\n\nmy answer") == "> first\n\nmy answer"
    assert without_quotation("> only a quotation") == "> only a quotation"


@pytest.mark.parametrize("piece", ["<", "<p", "&", "<!--", "<a href='", "]]>", "<![CDATA["])
def test_hostile_html_takes_linear_time(piece: str) -> None:
    def seconds(times: int) -> float:
        began = time.process_time()
        html_text(piece * times)
        return time.process_time() - began

    assert seconds(20_000) < 2.0


def test_a_header_cannot_be_injected() -> None:
    letter = OutgoingMail(
        id="<1@a>", to="ada@example.test", text="t", subject="a\r\nBcc: b@example.test"
    )
    source = compose(letter, _access())
    assert b"\r\nBcc" not in source
    assert b"Subject: a Bcc: b@example.test" in source


def test_a_long_message_id_is_written_as_it_is() -> None:
    first, answered = f"<{'x' * 800}@a>", f"<{'y' * 300}@a>"
    letter = OutgoingMail(
        id="<1@a>", to="ada@example.test", text="t", answered=answered, references=[first]
    )
    sent = parse(compose(letter, _access()))
    assert str(sent["In-Reply-To"]).split() == [answered]
    assert str(sent["References"]).split() == [first, answered]
    assert b"=?" not in compose(letter, _access())


@pytest.mark.parametrize("quit_answer", [b"421 4.3.2 closing", b"500 what?", b""])
def test_a_message_that_the_server_took_counts_as_sent_however_it_says_goodbye(
    quit_answer: bytes,
) -> None:
    with _smtp_server(quit_answer) as (port, taken):
        send(_access(port), "ada@example.test", b"Subject: x\r\n\r\nhello\r\n")
    assert taken == [b"Subject: x\r\n\r\nhello\r\n"]


def test_an_address_of_a_server_is_read_without_showing_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMAIL_IMAP_URL", "imaps://ada%40a.test:p%2Fw@mail.test/Work")
    server = server_of("EMAIL_IMAP_URL", ("imaps", "imap"))
    assert (server.user, server.password, server.port) == ("ada@a.test", "p/w", 993)
    assert (server.folder, server.has_tls) == ("Work", True)
    assert "p/w" not in repr(server)
    monkeypatch.setenv("EMAIL_IMAP_URL", "http://ada:secret@mail.test")
    with pytest.raises(HoldfastError, match="must begin with imaps:// or imap://") as refused:
        server_of("EMAIL_IMAP_URL", ("imaps", "imap"))
    assert "secret" not in str(refused.value)


def _access(smtp_port: int = 1) -> Access:
    server = Server(scheme="smtp", host="127.0.0.1", port=smtp_port)
    return Access(address=BOT, imap=server, smtp=server)


@contextmanager
def _smtp_server(quit_answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that takes every message and ends connections in its own way.

    Yields its port and the messages that it has taken."""
    taken: list[bytes] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 hello\r\n")
            while command := self.rfile.readline()[:4].upper():
                if command == b"QUIT":
                    self.wfile.write(quit_answer and quit_answer + b"\r\n")
                    return
                if command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    taken.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self.wfile.write(b"250 fine\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1], taken
        finally:
            server.shutdown()
            thread.join()
