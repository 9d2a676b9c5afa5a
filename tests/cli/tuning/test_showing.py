"""What a finished search looks like: in words, as JSON, as heat maps, as a page."""

from __future__ import annotations

import base64
import json
import re
import struct
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cli.tuning.simulated import Machine, searched
from gpuwire.cli.tuning.candidates import DEFAULT, Candidate, Space
from gpuwire.cli.tuning.comparing import Objective
from gpuwire.cli.tuning.heat_maps import DARK, LIGHT, Mark, draw
from gpuwire.cli.tuning.report import page
from gpuwire.cli.tuning.search import Search
from gpuwire.cli.tuning.standings import standings, worth_a_row
from gpuwire.cli.tuning.tables import as_json, headings, rows, sentence, today_sentence
from gpuwire.cli.tuning.workloads import Workload, standard_workloads

WORKLOADS = tuple(each for each in standard_workloads() if each.name in ("chain", "upload"))
SMALL = Space((1, 4, 64), (1024, 1024 * 1024), (replace(DEFAULT, segmentation_offload=True),))
MARKS = (Mark(DEFAULT, "today", "o"), Mark(replace(DEFAULT, flush_threshold=64), "best", "*"))


def done(
    effect: float, *, noise: float = 0.01, today: Candidate = DEFAULT, drift: float = 0.0
) -> Search:
    """A search in which 64 tasks are better by `effect`."""
    machine = Machine(
        lambda each: effect * (each.flush_threshold == 64), noise=noise, drift=drift, seed=2
    )
    return searched(Search(SMALL, today, Objective.BALANCED), machine)


def test_a_winner_is_told_with_gain_and_chance() -> None:
    said = sentence(done(0.2).outcome())
    assert said.startswith("Recommended: flush_threshold = 64")
    assert re.search(r"2\d\.\d % better", said)
    assert "10 pairs" in said and "chance" in said


def test_noise_is_called_noise() -> None:
    said = sentence(done(0.0, noise=0.1).outcome())
    assert said.startswith("Recommended: the default.")
    assert "inside the noise" in said or "No other setting measured better" in said


def test_todays_setting_is_judged_where_it_is_not_the_recommended_one() -> None:
    today = replace(DEFAULT, flush_threshold=7)
    search = done(0.2, today=today)
    said = today_sentence(search, search.outcome())
    assert said is not None and "flush_threshold = 7" in said
    best = replace(DEFAULT, flush_threshold=64)
    search = done(0.2, today=best)
    if search.outcome().recommended == best:
        assert today_sentence(search, search.outcome()) is None


def test_figures_are_those_of_one_moment_whatever_the_drift() -> None:
    search = done(0.2, drift=0.5)
    assert search.thresholds is not None
    found = {each.candidate: each for each in standings(search.thresholds)}
    default = found[DEFAULT].throughput["chain"].value
    better = found[replace(DEFAULT, flush_threshold=64)].throughput["chain"].value
    assert better / default == pytest.approx(1.22, abs=0.05)


def test_the_table_has_the_finalists_and_what_is_in_use() -> None:
    search = done(0.2)
    assert search.thresholds is not None
    every = standings(search.thresholds)
    short = [each for each in every if worth_a_row(each, search)]
    assert len(short) < len(every) == 6
    table = rows(short, search, WORKLOADS)
    assert {len(row) for row in table} == {len(headings(WORKLOADS))}
    assert table[0][2] == "best"
    assert [row[2] for row in table].count("default, today") == 1
    assert "op/s" in table[0][5] and "µs" in table[0][5]


def test_json_holds_everything() -> None:
    search = done(0.2)
    facts = json.loads(json.dumps(as_json(search, search.outcome(), WORKLOADS)))
    assert facts["recommended"]["flush_threshold"] == 64
    assert facts["finding"] == "better"
    assert len(facts["thresholds"]) == 6
    assert len(facts["link"]) == 2
    assert facts["best_against_default"]["pairs"] == 10


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_heat_maps_are_drawn_for_any_number_of_workloads_and_of_cells() -> None:
    search = done(0.2)
    assert search.thresholds is not None
    found = standings(search.thresholds)
    one = draw(found, WORKLOADS[:1], MARKS, "title")
    two = draw(found, WORKLOADS, MARKS, "title")
    assert size_of(two)[0] == size_of(one)[0]
    assert size_of(two)[1] > size_of(one)[1]
    assert draw(found, WORKLOADS, MARKS, "title", DARK) != two
    assert size_of(draw(found[:1], WORKLOADS, MARKS, "one cell", LIGHT))[1] > 0


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "href", "action") and value:
                self.references.append(value)
            if name == "alt":
                self.text += value or ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_is_whole_and_refers_to_nothing_outside_itself() -> None:
    search = done(0.2)
    assert search.thresholds is not None
    found = standings(search.thresholds)
    light, dark = (draw(found, WORKLOADS, MARKS, "title", theme) for theme in (LIGHT, DARK))
    facts = (("device", "an <adapter> & more"),)
    text = page(search, search.outcome(), WORKLOADS, facts, light, dark)
    seen = Page(text)
    assert len(seen.references) == 2
    for reference, picture in zip(seen.references, (dark, light), strict=True):
        assert reference == "data:image/png;base64," + base64.b64encode(picture).decode()
    assert "script" not in seen.tags and "link" not in seen.tags
    assert "url(" not in text and "@import" not in text
    assert "flush_threshold = 64" in seen.text
    assert "an <adapter> & more" in seen.text
    assert seen.tags.count("table") == 2, "thresholds, and ways of sending"


def test_a_user_workload_has_a_row_of_its_own() -> None:
    own = Workload("chain", "mine", "calls/s", 1, WORKLOADS[0].prepare, "mine")
    search = done(0.0)
    assert search.thresholds is not None
    (first, *_) = rows(standings(search.thresholds), search, (own,))
    assert "calls/s" in first[-1]
