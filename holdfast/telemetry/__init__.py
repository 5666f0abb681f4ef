"""The names of everything Holdfast tells of itself: metrics, spans and log events."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.telemetry.instruments import Counter, Gauge, Histogram, Instrument

QUERY_SECONDS = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)

RECEIPT_TO_CLAIM = Histogram(
    "holdfast_receipt_to_claim_seconds",
    "From an event being stored to its first claim.",
    ("queue",),
)
CLAIM_TO_SETTLE = Histogram(
    "holdfast_claim_to_settle_seconds",
    "From a turn being claimed to its end being stored: completed, dead, back or lost.",
    ("queue", "agent", "ended"),
)
RESPONSE_TO_DELIVERY = Histogram(
    "holdfast_response_to_delivery_seconds",
    "From a response being stored to its channel having it.",
    ("channel",),
)
RETRIES = Counter(
    "holdfast_retries_total",
    "Turns that failed and are tried again.",
    ("queue", "agent", "error_class"),
)
FAILURES = Counter(
    "holdfast_failures_total",
    "Turns that failed for good: dead letters.",
    ("queue", "agent", "error_class"),
)
LEASES_LOST = Counter(
    "holdfast_leases_lost_total",
    "Turns that became another worker's while we had them.",
    ("queue",),
)
WAKES = Counter(
    "holdfast_wakes_total",
    "Why a waiting consumer looked: triggered, due, timeout.",
    ("queue", "reason"),
)
SWEPT = Counter(
    "holdfast_swept_total", "Events ended and rows removed by maintenance.", ("queue", "what")
)
REAPED = Counter(
    "holdfast_processes_reaped_total", "Processes found dead, whose turns were taken from them.", ()
)
STORE_CALL = Histogram(
    "holdfast_store_call_seconds",
    "Calls of the store, with their wait for a connection.",
    ("call",),
    QUERY_SECONDS,
)
STORE_ERRORS = Counter(
    "holdfast_store_errors_total", "Calls of the store that failed.", ("call", "error_class")
)

LOOP_BLOCKED = Counter(
    "holdfast_loop_blocked_total",
    "Callbacks that blocked the event loop, by what they ran.",
    ("where",),
)
LOOP_BLOCKED_SECONDS = Counter(
    "holdfast_loop_blocked_seconds_total",
    "For how long callbacks blocked the event loop.",
    ("where",),
)

TOKENS = Counter(
    "holdfast_tokens_total",
    "Tokens that language models read (input) and wrote (output).",
    ("agent", "model", "kind"),
)

PLACES = Gauge("holdfast_places", "Turns that this process may work at once.", ("queue",))
PLACES_BUSY = Gauge("holdfast_places_busy", "Turns that this process works now.", ("queue",))
EVENTS = Gauge(
    "holdfast_events", "Live events: ready, delayed, queued, leased.", ("queue", "agent", "state")
)
OLDEST_READY = Gauge(
    "holdfast_oldest_ready_seconds",
    "How long the event that waits longest has been ready.",
    ("queue",),
)
OLDEST_PENDING = Gauge(
    "holdfast_oldest_pending_seconds",
    "Age of the oldest live event, also of one that is held or due later.",
    ("queue",),
)
OLDEST_SNAPSHOT = Gauge(
    "holdfast_oldest_snapshot_seconds",
    "Age of the oldest transaction that keeps dead rows from being removed.",
    (),
)
STORE_UP = Gauge("holdfast_store_up", "Whether the database answered.", ())

INSTRUMENTS: tuple[Instrument, ...] = (
    RECEIPT_TO_CLAIM,
    CLAIM_TO_SETTLE,
    RESPONSE_TO_DELIVERY,
    RETRIES,
    FAILURES,
    LEASES_LOST,
    WAKES,
    SWEPT,
    REAPED,
    STORE_CALL,
    STORE_ERRORS,
    LOOP_BLOCKED,
    LOOP_BLOCKED_SECONDS,
    TOKENS,
    PLACES,
    PLACES_BUSY,
    EVENTS,
    OLDEST_READY,
    OLDEST_PENDING,
    OLDEST_SNAPSHOT,
    STORE_UP,
)

SPAN_RECEIVE = "receive"
SPAN_WAKE = "wake"
SPAN_SWEEP = "sweep"
SPAN_REAP = "reap"
SPAN_MIGRATE = "migrate"
SPAN_TURN = "turn"
SPAN_CLAIM = "claim"
SPAN_HANDLE = "handle"
SPAN_SETTLE = "settle"
SPAN_STORE_CALL = "store"
"""Followed by the name of the call: store.checkpoint."""

AGENTS_CONFLICT = "processes define agents or teams differently"
AGENT_UNSERVED = "no running process serves this agent, its messages wait"
CANNOT_CUSTOMIZE = "Slack does not let team members post under their own names; they use the bot's"
CANNOT_BEAT = "a heartbeat has to wait"
CANNOT_APOLOGISE = "cannot tell who asked that there will be no answer"
CANNOT_CLAIM = "cannot claim"
CANNOT_FOLLOW = "cannot read what happened for those who watch"
CANNOT_GIVE_BACK = "cannot give turns back"
CANNOT_LISTEN = "the database session is gone, connecting again"
CANNOT_MAINTAIN = "maintenance has to wait"
CANNOT_RECEIVE = "a message cannot be stored and is left to its platform to send again"
CANNOT_SETTLE = "cannot settle, trying until the leases are over"
CANNOT_SHOW = "cannot show on a message that it is worked on"
CANNOT_SIGN_IN = "cannot sign in to Slack, trying again"
CANNOT_NAME = "Slack does not tell a name"
CANNOT_LOOK_UP = "Slack cannot be asked, going on without"
NOT_LET_IN = "a workspace does not let us in, the others work"
OPEN_TO_OTHERS = "secrets are open to others"
CANNOT_SIGN_OFF = "cannot sign off, others will find this process gone"
CANNOT_TELL = "what happened could not be written for whoever watches"
CLAIMS_AGAIN = "the database is back, claiming again"
CUT_SHORT = "the stop is cut short, others will find this process gone"
DEAD_LETTER = "a message is a dead letter"
END_REFUSED = "the end of a turn was refused"
END_WAITS = "a turn has to wait for its lease to end"
EVENTS_SWEPT = "events ended without an answer"
HEARTBEAT_ANSWERED = "an agent answered its heartbeat"
INDEX_AWAY = "the knowledge index is away, its changes wait"
FILES_KEPT = (
    "files that an agent named are not sent: not below the files root, or of another conversation"
)
FILE_REFUSED = "a file of a message is left where it is"
LANES_MENDED = "lanes had no head and were mended: please report this"
LISTENERS_SLOW = "listeners are too slow, this is not told to them"
LISTENER_FAILED = "a listener failed"
LISTENS_AGAIN = "the database session is back"
LOOP_IS_BLOCKED = "the event loop is blocked"
LOOP_RUNS_AGAIN = "the event loop runs again"
MEMORY_MISSING = (
    "memory needs packages that are not installed: observations are kept, and nothing is found"
)
MODEL_CHANGED = "another model indexes from now on, what there is goes to the relays again"
PROCESS_GONE = "a process is gone, its turns can be claimed again"
READER_SLOW = "a client takes its answer too slowly, its connection is closed"
RELAY_FAILED = "a change could not be indexed"
REQUEST_FAILED = "a request failed"
STOPPED_AT_ONCE = "stopped at once, other processes take the turns that were running"
SIGNED_IN_AGAIN = "Slack can be reached again"
SLACK_INCOMPLETE = "Slack is only partly set up"
THREAD_RUNS_ON = "a plain function cannot be stopped, its turn is kept until it ends"
TURN_DROPPED = "a turn is another worker's now, dropped"
TURN_FAILED = "a turn failed"
TURNS_GIVEN_BACK = "turns did not end in time and are given back"
TURNS_LEFT = "turns are left to end with their leases"
TURNS_LOST = "turns were lost before they settled"
WATCHER_SLOW = "who watches is too slow and has to come again"


MOST_TOKENS = 1_000_000_000
"""Tokens that one turn can have used; what reports more is mistaken."""


def token_counts(reported: Mapping[str, object]) -> dict[str, int]:
    """The token counts that a provider or a command reported, without those that cannot be true."""
    return {
        name: count
        for name, count in reported.items()
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_TOKENS
    }


def count_tokens(agent: str, model: str, usage: Mapping[str, int]) -> None:
    """Count what one turn of an agent used: input_tokens and output_tokens."""
    for name, count in token_counts(usage).items():
        TOKENS.add(agent, model, name.removesuffix("_tokens"), by=count)
