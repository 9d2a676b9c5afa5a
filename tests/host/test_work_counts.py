"""What a session's client is told of its operations and its graphs: along with replies, no more."""

from __future__ import annotations

from gpuwire.ids import GraphId
from gpuwire.wire.messages import DefineGraph, Done, GraphMissing, WorkCounts
from host.conftest import MAX_GRAPHS, FrontEnd
from host.test_graphs import SCALE_AND_ADD, Client
from host_tasks import add, read, register, sync


def ops(front: FrontEnd, session: int) -> int:
    return sum(sum(told.operations) for told in front.counts.get(session, []))


def cache(front: FrontEnd, session: int) -> tuple[int, int, int]:
    told = front.counts.get(session, [])
    return (
        sum(counts.graph_hits for counts in told),
        sum(counts.graph_misses for counts in told),
        sum(counts.graph_evictions for counts in told),
    )


def test_counts_come_ahead_of_the_reply_that_waited_for_the_work(front, runner) -> None:
    async def scenario() -> None:
        session, other, client = front.open(), front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        for number in range(5):
            base = 10 * (number + 1)
            told = None if number else SCALE_AND_ADD
            run = client.run(1, base, [1], [base + 1, base + 2], [2.0, 1.0], definition=told)
            front.tasks(session, run, add(1, 1.0, base + 3), sync(60 + number))
            await front.reply(session, 60 + number)
            assert ops(front, session) == 4 * (number + 1)
            assert cache(front, session) == (number, 0, 0)
        assert front.kinds[session] == [WorkCounts, Done] * 5
        front.tasks(other, sync(60))
        await front.reply(other, 60)
        assert other not in front.counts
        await front.end(session)
        await front.end(other)

    runner.run(scenario())


def test_what_has_not_changed_is_not_told(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1, 2, 3, 4]), add(1, 1.0, 2), read(2, request=60))
        await front.reply(session, 60)
        assert len(front.counts[session]) == 1
        front.tasks(session, read(2, request=61), sync(62))
        await front.reply(session, 61)
        await front.reply(session, 62)
        assert len(front.counts[session]) == 1
        await front.end(session)

    runner.run(scenario())


def test_misses_and_evictions_are_counted_by_session(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        for graph in range(1, MAX_GRAPHS + 2):
            base = 100 * graph
            outputs, told = [base + 1, base + 2], SCALE_AND_ADD
            run = client.run(graph, base, [1], outputs, [2.0, 1.0], definition=told)
            front.tasks(session, run)
        front.tasks(session, client.run(1, 1000, [1], [1001, 1002], [2.0, 1.0]))
        await front.message(GraphMissing)
        front.tasks(session, DefineGraph(GraphId(1), SCALE_AND_ADD), sync(60))
        await front.reply(session, 60)
        assert cache(front, session) == (0, 1, 2)
        assert ops(front, session) == 3 * (MAX_GRAPHS + 2)
        await front.end(session)

    runner.run(scenario())
