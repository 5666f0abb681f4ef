"""The names of all metrics, spans and log events."""

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
    "From the storing of an event to its first claim.",
    ("queue",),
)
CLAIM_TO_SETTLE = Histogram(
    "holdfast_claim_to_settle_seconds",
    "From the claim of a turn to its settle: completed, dead, back or lost.",
    ("queue", "agent", "ended"),
)
RESPONSE_TO_DELIVERY = Histogram(
    "holdfast_response_to_delivery_seconds",
    "From the storing of a response to its delivery.",
    ("channel",),
)
RETRIES = Counter(
    "holdfast_retries_total",
    "Turns that failed and will be tried again.",
    ("queue", "agent", "error_class"),
)
FAILURES = Counter(
    "holdfast_failures_total",
    "Turns that failed for good: dead letters.",
    ("queue", "agent", "error_class"),
)
LEASES_LOST = Counter(
    "holdfast_leases_lost_total",
    "Turns that another worker took over while this process had them.",
    ("queue",),
)
WAKES = Counter(
    "holdfast_wakes_total",
    "Wake-ups of consumers by reason: triggered, due, timeout.",
    ("queue", "reason"),
)
SWEPT = Counter(
    "holdfast_swept_total", "Events ended and rows removed by maintenance.", ("queue", "what")
)
REAPED = Counter(
    "holdfast_processes_reaped_total", "Dead processes whose turns this process released.", ()
)
STORE_CALL = Histogram(
    "holdfast_store_call_seconds",
    "Duration of store calls, including the wait for a connection.",
    ("call",),
    QUERY_SECONDS,
)
STORE_ERRORS = Counter(
    "holdfast_store_errors_total", "Calls of the store that failed.", ("call", "error_class")
)

LOOP_BLOCKED = Counter(
    "holdfast_loop_blocked_total",
    "Callbacks that blocked the event loop, by function.",
    ("where",),
)
LOOP_BLOCKED_SECONDS = Counter(
    "holdfast_loop_blocked_seconds_total",
    "Time for which callbacks blocked the event loop.",
    ("where",),
)

TOKENS = Counter(
    "holdfast_tokens_total",
    "Tokens that language models read (input) and wrote (output).",
    ("agent", "model", "kind"),
)

GAP_MESSAGES = Counter(
    "holdfast_gap_messages_total",
    "Messages that channels fetched after a time without a connection.",
    ("channel",),
)
LAST_GAP_MESSAGES = Gauge(
    "holdfast_last_gap_messages", "Messages that the last gap of a channel brought.", ("channel",)
)
LAST_GAP_SECONDS = Gauge(
    "holdfast_last_gap_seconds", "Length of the last gap, where it is known.", ("channel",)
)
LAST_GAP_CLOSED = Gauge(
    "holdfast_last_gap_closed_timestamp_seconds",
    "Unix time at which the last gap was closed.",
    ("channel",),
)

SLOTS = Gauge(
    "holdfast_slots",
    "Maximum number of turns this process works at once.",
    ("queue",),
    old_name="holdfast_places",
)
SLOTS_BUSY = Gauge(
    "holdfast_slots_busy",
    "Turns this process is working now.",
    ("queue",),
    old_name="holdfast_places_busy",
)
EVENTS = Gauge(
    "holdfast_events", "Live events: ready, delayed, queued, leased.", ("queue", "agent", "state")
)
OLDEST_READY = Gauge(
    "holdfast_oldest_ready_seconds",
    "Time for which the longest waiting event has been ready.",
    ("queue",),
)
OLDEST_PENDING = Gauge(
    "holdfast_oldest_pending_seconds",
    "Age of the oldest live event, including leased and delayed ones.",
    ("queue",),
)
OLDEST_SNAPSHOT = Gauge(
    "holdfast_oldest_snapshot_seconds",
    "Age of the oldest transaction that keeps dead rows from being vacuumed.",
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
    GAP_MESSAGES,
    LAST_GAP_MESSAGES,
    LAST_GAP_SECONDS,
    LAST_GAP_CLOSED,
    SLOTS,
    SLOTS_BUSY,
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
"""Prefix of the name of the call: store.checkpoint."""

AGENTS_CONFLICT = "processes define agents or teams differently"
AGENT_UNSERVED = "no running process serves this agent; its messages wait"
SLACK_CUSTOMIZE_REFUSED = "Slack does not let team members use their own names; all use the bot's"
SCHEDULES_FAILED = "could not run the schedules, will try again"
SCHEDULE_INVALID = "a schedule cannot run and is paused; remove it and add it again"
SCHEDULE_CONFLICT = "a schedule of the settings has the id of another one; rename it"
NOTICE_FAILED = "could not notify the sender of a dead letter"
CLAIM_FAILED = "could not claim, will try again"
ACTIVITY_READ_FAILED = "could not read activity for event streams"
RELEASE_FAILED = "could not release turns"
SESSION_LOST = "lost the database session, reconnecting"
RESUME_FAILED = "could not look for signals of a turn that waits; the next sweep will"
JOURNAL_FAILED = "could not record a step or a text, will try until the lease ends"
STEPS_IGNORED = "steps of a turn with another number of messages are not reused"
STEPS_UNUSED = "steps of an earlier attempt no longer occur; their results are not used"
STEP_UNREADABLE = "the recorded result of a step does not fit its type any more; it runs again"
SWEEP_FAILED = "maintenance failed, will try again"
RECEIVE_FAILED = "could not store a message; its platform will send it again"
SETTLE_FAILED = "could not settle, will try until the leases end"
SLACK_STATUS_FAILED = "could not show in Slack that a message is being worked on"
PREVIEW_FAILED = "could not show a growing answer; the response will come whole"
SLACK_PROGRESS_FAILED = "could not show in Slack what the agent does; the answer is not affected"
SLACK_SIGN_IN_FAILED = "could not sign in to Slack, will try again"
SLACK_NAME_UNKNOWN = "Slack returned no name"
SLACK_PRESS_NOT_SHOWN = "could not show in Slack which button was pressed"
SLACK_LOOKUP_FAILED = "Slack look-up failed, continuing without it"
SLACK_WORKSPACE_REFUSED = "a Slack workspace refuses the bot; the others work"
PLATFORM_UNREACHABLE = "a platform is unreachable, will try again"
POSITION_UNKNOWN = "a platform does not know the stored position; starting from now"
STATUS_FAILED = "could not show that a message is being worked on"
INVITATION_FAILED = "could not accept an invitation"
ROOM_UNREADABLE = "the bot may not read a room; its new messages are left out"
ROOM_ENCRYPTED = "messages of an encrypted room cannot be read"
SECRETS_EXPOSED = "other users can read secrets"
SIGN_OFF_FAILED = "could not sign off; other processes will find this one gone"
ACTIVITY_WRITE_FAILED = "could not store activity for event streams"
CLAIM_RESUMED = "the database is back, claiming again"
STOP_TIMED_OUT = "the graceful stop timed out; other processes will find this one gone"
DEAD_LETTER = "a message became a dead letter"
SETTLE_REFUSED = "the outcome of a turn was refused"
SETTLE_GIVEN_UP = "a turn could not be settled; its lease must run out"
EVENTS_SWEPT = "a sweep turned events into dead letters"
HEARTBEAT_ANSWERED = "an agent answered its heartbeat"
INDEX_UNREACHABLE = "the knowledge index is unreachable; its changes wait"
FILES_NOT_SENT = (
    "files of a reply were not sent: outside the files root, or of another conversation"
)
FILE_NOT_FETCHED = "a file of a message was not fetched"
LANES_REPAIRED = "lanes without a head were repaired; please report this"
LISTENERS_TOO_SLOW = "listeners are too slow, a frame was dropped"
LISTENER_FAILED = "a listener failed"
SESSION_RESTORED = "the database session is back"
LOOP_IS_BLOCKED = "the event loop is blocked"
LOOP_RUNS_AGAIN = "the event loop runs again"
UVLOOP_MISSING = "uvloop is not installed; asyncio runs instead"
MEMORY_NOT_INSTALLED = (
    "memory packages are not installed; observations are stored but cannot be searched"
)
MODEL_CHANGED = "the embedding model changed; all observations are indexed again"
PROCESS_GONE = "a process is gone; its turns can be claimed again"
CLIENT_TOO_SLOW = "a client reads its response too slowly; connection closed"
INDEXING_FAILED = "could not index a change"
REQUEST_FAILED = "a request failed"
STOPPED_AT_ONCE = "stopped at once; other processes take over the running turns"
PLATFORM_REACHABLE = "a platform is reachable again"
INVITATION_REFUSED = "refused an invitation of somebody who is not admitted"
SLACK_REACHABLE = "Slack is reachable again"
UPDATE_UNREADABLE = "a platform sent something that cannot be read; skipped"
CHANNEL_REFUSED = "a platform refuses its channel; everything else goes on"
CHANNEL_INCOMPLETE = "a channel is only partly configured"
PAIRING_FULL = "too many strangers wait for approval; further ones get no code"
CHANNEL_EVENT_FAILED = "a channel could not handle an event of its platform"
COPY_FAILED = "could not keep a copy of a sent message"
GAP_NOT_CLOSED = "could not fetch missed messages, will try again"
GAP_ROOM_UNREADABLE = "could not ask a room for missed messages"
THREAD_RUNS_ON = "a plain function cannot be stopped; its turn is kept until it ends"
TURN_DROPPED = "another worker owns this turn now; work dropped"
TURN_FAILED = "a turn failed"
CLAIMS_GIVEN_BACK = "turns were claimed without an answer and given back"
TURNS_RELEASED = "turns did not finish in time and were released"
VACUUM_FAILED = "the live table could not be vacuumed; the server does so within minutes"
SEND_ABANDONED = "a request did not end after a stop; whether the platform took it is unknown"
TURNS_ABANDONED = "turns did not stop; they are free again when their leases end"
TURNS_LOST = "turns were lost before they were settled"
STREAM_CLIENT_TOO_SLOW = "event stream client too slow, disconnected; it can resume"


MOST_TOKENS = 1_000_000_000
"""Maximum plausible number of tokens of one turn; greater reports are ignored."""


def token_counts(reported: Mapping[str, object]) -> dict[str, int]:
    """Return the plausible token counts of a report."""
    return {
        name: count
        for name, count in reported.items()
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_TOKENS
    }


def count_tokens(agent: str, model: str, usage: Mapping[str, int]) -> None:
    """Add the input_tokens and output_tokens of one turn of an agent to the metric."""
    for name, count in token_counts(usage).items():
        TOKENS.add(agent, model, name.removesuffix("_tokens"), by=count)
