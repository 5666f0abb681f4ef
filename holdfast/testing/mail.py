"""Real mail servers on loopback for tests: Dovecot for reading, Postfix for sending.

with MailServer() as mail:
    ...  # an app with mail.imap_url("bot"), mail.smtp_url and mail.address("bot")
    mail.send(mail.letter("ada", "bot", "hello"))
"""

from __future__ import annotations

import os
import shutil
import smtplib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from email.utils import make_msgid
from pathlib import Path
from types import TracebackType
from typing import Any

from imapclient import IMAPClient  # type: ignore[import-untyped]

DOMAIN = "example.test"
PASSWORD = "secret"  # noqa: S105
STARTS_WITHIN = 20.0
VALIDITY = 77
"""UIDVALIDITY of a folder that was replaced."""
DOVECOT = """
protocols = imap lmtp
listen = 127.0.0.1
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
ssl = no
disable_plaintext_auth = no
auth_failure_delay = 0
mail_location = maildir:{folder}/mail/%u
first_valid_uid = 1
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={folder}/mail/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
# After a wrong password, logins from the same address would have to wait.
service anvil {{
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service lmtp {{
  unix_listener {folder}/lmtp {{
    mode = 0666
  }}
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
"""
POSTFIX_MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/spool
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.{domain}
mydestination =
alias_maps =
virtual_mailbox_domains = {domain}
virtual_transport = lmtp:unix:{folder}/lmtp
default_transport = error:no mail leaves this machine
lmtp_destination_concurrency_limit = 1
mynetworks = 127.0.0.0/8
smtpd_recipient_restrictions = check_recipient_access texthash:{folder}/access,
    permit_mynetworks, reject
maillog_file = {folder}/postfix.log
maillog_file_prefixes = {folder}
"""
ACCESS = "gone@{domain} REJECT\n"
POSTFIX_MASTER = """
127.0.0.1:{smtp} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


class MailServer:
    """Servers of one domain. Every address of it has a mailbox, and the same password."""

    def __init__(self) -> None:
        self.imap_port, self.smtp_port = free_port(), free_port()
        self._folder = Path()

    def __enter__(self) -> MailServer:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-mail-"))
        # The servers give up root, and must reach their folders.
        self._folder.chmod(0o755)
        for name in ("run", "mail", "spool", "data", "postfix"):
            (self._folder / name).mkdir()
        shutil.chown(self._folder / "mail", "nobody")
        shutil.chown(self._folder / "data", "postfix")
        for name, text in self._files().items():
            (self._folder / name).write_text(text)
        self.start_imap()
        _run("postfix", "-c", str(self._folder / "postfix"), "start")
        _wait_for(self.smtp_port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _run("postfix", "-c", str(self._folder / "postfix"), "stop")
        self.stop_imap()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start_imap(self) -> None:
        _run("dovecot", "-c", str(self._folder / "dovecot.conf"))
        _wait_for(self.imap_port)

    def stop_imap(self) -> None:
        with suppress(subprocess.CalledProcessError):
            _run("doveadm", "-c", str(self._folder / "dovecot.conf"), "stop")

    def kick(self, name: str) -> None:
        """Break the connections of one mailbox."""
        config = str(self._folder / "dovecot.conf")
        _run("doveadm", "-c", config, "kick", self.address(name))

    @contextmanager
    def deferring(self, name: str) -> Iterator[None]:
        """Ask senders to deliver mail to an address later, while the block runs."""
        access = self._folder / "access"
        before = access.read_text()
        access.write_text(f"{before}{self.address(name)} 450 4.2.1 the mailbox is busy\n")
        self._reload_smtp()
        try:
            yield
        finally:
            access.write_text(before)
            self._reload_smtp()

    def deferrals(self, name: str) -> int:
        """Return how often a sender was asked to deliver mail to an address later."""
        lines = (self._folder / "postfix.log").read_text().splitlines()
        return sum("NOQUEUE" in line and f"to=<{self.address(name)}>" in line for line in lines)

    def _reload_smtp(self) -> None:
        _run("postfix", "-c", str(self._folder / "postfix"), "reload")

    def change_validity(self, name: str) -> None:
        """Give a folder another UIDVALIDITY, as servers do that restore or move a mailbox."""
        config, user = str(self._folder / "dovecot.conf"), self.address(name)
        _run(
            "doveadm",
            "-c",
            config,
            "mailbox",
            "update",
            "--uid-validity",
            str(VALIDITY),
            "-u",
            user,
            "INBOX",
        )

    def mark_answered(self, name: str, text: str) -> None:
        """Mark messages with a text as answered, as the mail programs of people do."""
        with IMAPClient("127.0.0.1", self.imap_port, ssl=False) as client:
            client.login(self.address(name), PASSWORD)
            client.select_folder("INBOX")
            client.add_flags(client.search(["BODY", text]), [b"\\Answered"])

    def _files(self) -> dict[str, str]:
        given: dict[str, Any] = {
            "folder": self._folder,
            "domain": DOMAIN,
            "password": PASSWORD,
            "imap": self.imap_port,
            "smtp": self.smtp_port,
        }
        texts = {
            "dovecot.conf": DOVECOT,
            "postfix/main.cf": POSTFIX_MAIN,
            "postfix/master.cf": POSTFIX_MASTER,
            "access": ACCESS,
        }
        return {name: text.lstrip().format(**given) for name, text in texts.items()}

    def address(self, name: str) -> str:
        return f"{name}@{DOMAIN}"

    def mail_folder(self, name: str) -> Path:
        """Return the Maildir of a mailbox."""
        return self._folder / "mail" / self.address(name)

    def imap_url(self, name: str, password: str = PASSWORD, port: int | None = None) -> str:
        return f"imap://{name}%40{DOMAIN}:{password}@127.0.0.1:{port or self.imap_port}"

    @property
    def smtp_url(self) -> str:
        return f"smtp://127.0.0.1:{self.smtp_port}"

    def letter(self, sender: str, to: str, text: str, **headers: str) -> EmailMessage:
        """Return a message of a person. An underscore in a header's name stands for a hyphen."""
        message = EmailMessage()
        given = {
            "From": f"{sender.title()} <{self.address(sender)}>",
            "To": self.address(to),
            "Subject": "a question",
            "Message-ID": make_msgid(domain=DOMAIN),
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in given.items():
            message[name] = value
        message.set_content(text)
        return message

    def send(self, message: EmailMessage) -> str:
        """Send a message. Returns its Message-ID."""
        with smtplib.SMTP("127.0.0.1", self.smtp_port) as server:
            server.send_message(message)
        return str(message["Message-ID"])

    def read(self, name: str, folder: str = "INBOX") -> list[EmailMessage]:
        """Return the messages in a mailbox, oldest first."""
        with IMAPClient("127.0.0.1", self.imap_port, ssl=False) as client:
            client.login(self.address(name), PASSWORD)
            client.select_folder(folder, readonly=True)
            found = client.fetch(client.search(), ["BODY.PEEK[]"])
        return [parse(found[uid][b"BODY[]"]) for uid in sorted(found)]


class Inbox:
    """The messages of an inbox with the times at which they came, read from its files.

    Reading them over IMAP again and again would cost the server more than delivering them."""

    def __init__(self, server: MailServer, name: str) -> None:
        self._folder = server.mail_folder(name)
        self._known: dict[str, tuple[float, EmailMessage]] = {}

    def read(self) -> list[tuple[float, EmailMessage]]:
        """Return all messages so far, oldest first."""
        for path in [*self._folder.glob("new/*"), *self._folder.glob("cur/*")]:
            name = path.name.partition(":")[0].partition(",")[0]
            # The server may move a file from new to cur meanwhile.
            with suppress(FileNotFoundError):
                if name not in self._known:
                    self._known[name] = (_arrival(name), parse(path.read_bytes()))
        return sorted(self._known.values(), key=lambda one: one[0])


def _arrival(name: str) -> float:
    """Return the time in the name of a Maildir file, as in 1700000000.M123456P78.host."""
    seconds, _, rest = name.partition(".M")
    return int(seconds) + int(rest.partition("P")[0]) / 1_000_000


def parse(source: bytes) -> EmailMessage:
    return BytesParser(_class=EmailMessage, policy=default).parsebytes(source)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin"}
    subprocess.run(
        command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _wait_for(port: int) -> None:
    give_up_at = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
