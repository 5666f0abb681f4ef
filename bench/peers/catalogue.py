"""The compared queues: how each is run, and the SQL that looks into its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POSTGRES, SQLITE = "postgres", "sqlite"
HOLDFAST = "holdfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A queue in the comparison."""

    name: str
    side: str
    """Module in `bench.peers.side`, or a program for Node.js."""
    store: str = POSTGRES
    own: bool = False
    """Runs in our environment instead of that of the peers."""
    package: str = ""
    """Distribution whose version the report shows."""
    pending: str
    """Query: whether an event waits or is being handled."""
    load: str = ""
    """Statement that copies the one event in the queue %(count)s times."""
    history: str = ""
    """Query: whether an ended event is kept with its payload, in which %(name)s stands."""
    expire: str = ""
    """Statement that ages all leases, where no setting makes them short."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Meaning of "put", "default" and "best", in words for the report."""
    restarts: bool = False
    """Its crashed work is recovered when a process of the same name starts again."""
    guaranteed: bool = True
    """Has guarantees to probe."""
    options: tuple[str, ...] = ()
    """Guarantees that cost extra and were off in the timed runs."""


PEERS = (
    Peer(
        name="raw SQL",
        side="raw",
        own=True,
        package="psycopg",
        pending="select exists (select from raw_queue)",
        load="insert into raw_queue (event) select event from raw_queue"
        ", generate_series(2, %(count)s)",
        settings={
            "put": "one insert, or copy",
            "default": "claim 1, settle 1",
            "best": "claim 500, move 500 to history",
        },
        guaranteed=False,
    ),
    Peer(
        name="Holdfast",
        side=HOLDFAST,
        own=True,
        package="holdfast-agents",
        pending="select exists (select from agent.event where queue = 'inbox')",
        history="select exists (select from agent.event_hist where event::text like %(name)s)",
        settings={
            "put": "lane and dedup key on each event",
            "default": "holdfast work",
            "best": "holdfast work --workers 2000",
        },
    ),
    Peer(
        name="PgQueuer",
        side="pgqueuer",
        package="pgqueuer",
        options=("dedup",),
        pending="select exists (select from pgqueuer where status in ('queued', 'picked'))",
        load="""
            insert into pgqueuer (priority, status, entrypoint, payload, created, updated)
            select priority, status, entrypoint, payload, created, updated
            from pgqueuer, generate_series(2, %(count)s)""",
        history="select exists (select from pgqueuer_log as log where log::text like %(name)s)",
        settings={
            "put": "asyncpg pool, uvloop; bulk by arrays",
            "default": "batch_size 10",
            "best": "batch_size 500, uvloop",
        },
    ),
    Peer(
        name="Procrastinate",
        side="procrastinate",
        package="procrastinate",
        options=("order", "dedup"),
        pending="select exists (select from procrastinate_jobs where status in ('todo', 'doing'))",
        load="""
            insert into procrastinate_jobs (queue_name, task_name, args)
            select queue_name, task_name, args
            from procrastinate_jobs, generate_series(2, %(count)s)""",
        history="""
            select exists (
                select from procrastinate_jobs where status = 'succeeded'
                and args::text like %(name)s)""",
        settings={
            "put": "psycopg pool; bulk by batch_defer",
            "default": "concurrency 1",
            "best": "concurrency 30",
        },
    ),
    Peer(
        name="pgmq",
        side="pgmq",
        package="pgmq",
        options=("order", "atomic follow-ups"),
        pending="select exists (select from pgmq.q_bench)",
        load="select pgmq.send_batch('bench', array_agg(message))"
        " from pgmq.q_bench, generate_series(2, %(count)s)",
        history="select exists (select from pgmq.a_bench where message::text like %(name)s)",
        settings={
            "put": "asyncpg pool, uvloop; bulk by send_batch",
            "default": "read 1, archive 1",
            "best": "read 500, archive 500",
        },
    ),
    Peer(
        name="graphile-worker",
        side="graphile.cjs",
        package="graphile-worker",
        options=("order", "dedup"),
        pending="select exists (select from graphile_worker._private_jobs)",
        load="""
            insert into graphile_worker._private_jobs (task_id, payload)
            select task_id, payload
            from graphile_worker._private_jobs, generate_series(2, %(count)s)""",
        expire="""
            select graphile_worker.force_unlock_workers(array_agg(locked_by))
            from graphile_worker._private_jobs where locked_by is not null""",
        settings={
            "put": "addJob, bulk by addJobs",
            "default": "concurrentJobs 1",
            "best": "concurrentJobs 24, localQueue 500, completeJobBatchDelay 0",
        },
    ),
    Peer(
        name="Absurd",
        side="absurd",
        package="absurd-sdk",
        options=("dedup", "atomic follow-ups"),
        pending="""
            select exists (
                select from absurd.r_bench where state in ('pending', 'running', 'sleeping'))""",
        history="""
            select exists (
                select from absurd.t_bench where state = 'completed' and params::text like %(name)s)
            """,
        settings={
            "put": "spawn; bulk in one transaction",
            "default": "concurrency 1",
            "best": "concurrency 100, batch_size 500",
        },
    ),
    Peer(
        name="DBOS",
        side="dbos",
        package="dbos",
        options=("order", "dedup"),
        pending="""
            select exists (
                select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING'))""",
        history="""
            select exists (
                select from dbos.workflow_status where status = 'SUCCESS')""",
        settings={
            "put": "DBOSClient.enqueue_async, no bulk",
            "default": "queue without limits, polled every second",
            "best": "worker_concurrency 500, polled every 100 ms",
        },
        restarts=True,
    ),
    Peer(
        name="Holdfast",
        side=HOLDFAST,
        store=SQLITE,
        own=True,
        package="holdfast-agents",
        pending="select exists (select 1 from event where queue = 'inbox')",
        history="select exists (select 1 from event_hist where event like :name)",
        settings={
            "put": "lane and dedup key on each event, synchronous = full",
            "default": "holdfast work",
            "best": "holdfast work --workers 2000",
        },
    ),
    Peer(
        name="Huey",
        side="huey",
        store=SQLITE,
        package="huey",
        pending="select exists (select 1 from task) or exists (select 1 from schedule)",
        settings={"put": "fsync on", "default": "1 thread", "best": "4 threads"},
    ),
)
