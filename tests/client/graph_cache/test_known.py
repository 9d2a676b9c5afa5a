"""The graphs that are known: which one serves a run, and which goes when there are too many."""

from __future__ import annotations

from gpuwire.client.graph_cache.known import KnownGraph, KnownGraphs
from gpuwire.client.graph_cache.relative import Content

OPS = 20
CONTENT: Content = (tuple(range(1, OPS + 1)), ())


def registered(known: KnownGraphs, mask: int, *, content: Content = CONTENT, size: int = 10) -> int:
    outputs = tuple([number for number in range(OPS) if mask >> number & 1])
    graph = KnownGraph(known.new_id(), content, mask, outputs, bytes(size))
    known.ran(graph)
    return graph.id


def found(known: KnownGraphs, mask: int, content: Content = CONTENT) -> int | None:
    graph = known.find(content, mask)
    return None if graph is None else graph.id


def test_a_graph_serves_runs_with_its_outputs_or_a_few_less() -> None:
    known = KnownGraphs()
    one = registered(known, 0b1)
    more = registered(known, 0b111)
    assert found(known, 0b1) == one
    assert found(known, 0b111) == more
    assert found(known, 0b10) == more
    assert found(known, 0b1000) is None
    assert found(known, 0b1, (CONTENT[0][:-1], ())) is None


def test_a_graph_with_many_more_outputs_does_not_serve() -> None:
    known = KnownGraphs()
    registered(known, (1 << OPS) - 1)
    assert found(known, 0b1) is None


def test_outputs_that_always_differ_end_in_one_graph_with_all_of_them() -> None:
    known = KnownGraphs()
    count = 0
    for turn in range(200):
        mask = 1 << OPS - 1 | 1 << turn * 7 % (OPS - 1) | 1 << turn * 5 % (OPS - 1)
        if known.find(CONTENT, mask) is None:
            count += 1
            registered(known, known.mask_to_register(CONTENT, mask))
    assert count < 20


def test_the_graph_not_run_for_longest_goes_first_and_is_still_told_again() -> None:
    known = KnownGraphs(max_graphs=2)
    contents: list[Content] = [((number,), ()) for number in (1, 2, 3)]
    first = registered(known, 1, content=contents[0])
    second = registered(known, 1, content=contents[1], size=11)
    graph = known.find(contents[0], 1)
    assert graph is not None
    known.ran(graph)
    third = registered(known, 1, content=contents[2])
    assert [found(known, 1, content) for content in contents] == [first, None, third]
    assert known.definition(second) == bytes(11)  # type: ignore[arg-type]
    assert known.definition(99) is None  # type: ignore[arg-type]


def test_their_size_counts_too() -> None:
    known = KnownGraphs(max_bytes=100)
    for number in range(5):
        registered(known, 1, content=((number + 1,), ()), size=60)
        assert len(known) == 1
