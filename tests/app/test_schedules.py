"""Schedules in running processes: from the settings, woken by a change, answered to a channel."""

from __future__ import annotations

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.schedule import ScheduleChannel
from holdfast.queue.store import Filter
from holdfast.routing.schedules import run_now
from holdfast.settings import Settings
from holdfast.settings.schedules import ScheduleTable
from holdfast.store.schedules import Draft, Schedules, add_schedule
from tests.steps import both_engines, finished, running, until


def harness() -> AgentHarness:
    app = AgentHarness()
    app.add("coder", echo)
    return app


@both_engines
async def test_a_schedule_of_the_settings_runs_once_in_two_processes(settings: Settings) -> None:
    table = ScheduleTable(id="tick", timing="every 1s", message="tick", to="api:ann")
    settings = settings.model_copy(update={"schedules": (table,)})
    app = harness()
    async with running(app, settings), running(harness(), settings):
        await until(lambda: app.store.waiting("outbox", "api"))
        responses = await app.store.waiting("outbox", "api")
        prompts = await app.store.finished(Filter(queue="inbox"))
    assert {one.event["conversation"] for one in responses} == {"api:ann"}
    ids = [one.message_id or "" for one in prompts]
    assert len(set(ids)) == len(ids)
    assert all(id.startswith("schedule_tick_") for id in ids)


@both_engines
async def test_answers_without_a_conversation_stay_in_history(settings: Settings) -> None:
    async with running(harness(), settings) as app:
        draft = Draft(timing="0 9 * * *", text="look", agent="coder")
        schedule = await add_schedule(app.store, draft, actor="cli:ada")
        await run_now(app.store, app.routing, schedule.id, max_attempts=5, actor="cli:ada")
        [sent] = await finished(app.store, queue="outbox")
        lines = await app.store.agent_messages("coder", conversation=f"schedule:{schedule.id}")
    assert sent.outcome == "completed"
    assert [line.role for line in lines] == ["assistant", "user"]


@both_engines
async def test_a_new_schedule_wakes_a_process_that_sleeps(settings: Settings) -> None:
    async with running(harness(), settings) as app:
        channel = app.channels["schedule"]
        assert isinstance(channel, ScheduleChannel)
        draft = Draft(timing="every 1s", text="look", agent="coder")
        await add_schedule(app.store, draft, actor="cli:ada")
        # Without the wake-up, the next look is ten seconds away.
        await until(lambda: app.store.finished(Filter(queue="inbox")), within=8)
        assert (await Schedules(app.store).all())[0].last_at is not None
