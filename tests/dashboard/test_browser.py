"""The page in a real browser, with a real session at work: seen, steered by keys, in both colours,
on a phone's width, and when its server goes away."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gpuwire as gw
from browser import Browser
from gpuwire.config import load_config
from servers import ServerProcess


def work(dev: gw.Device, rounds: int) -> None:
    """A loop that repeats itself, so that it becomes an op-graph."""
    x = gw.asarray(np.ones((8, 4), np.float32), device=dev)
    for _ in range(rounds):
        y = gw.sum(gw.tanh(x) * 2.0, axis=0)
        dev.sync()
    assert np.asarray(y).shape == (4,)


def test_the_page_shows_a_session_at_work(
    served: tuple[ServerProcess, str], tmp_path: Path
) -> None:
    server, url = served
    config = load_config(remote__upload_cache=True)
    with Browser(tmp_path / "browser") as browser, gw.connect(server.ticket, config=config) as dev:
        browser.open(url)
        browser.wait("document.getElementById('link').textContent === 'live'")
        browser.wait("document.querySelectorAll('#sessions tbody tr').length === 1")
        row = "document.querySelector('#sessions tbody').innerText"
        assert "open" in browser.evaluate(row)
        assert "default" in browser.evaluate(row)

        for _ in range(2):
            gw.asarray(np.ones((1024, 512), np.float32), device=dev)
        work(dev, 12)
        browser.wait("document.querySelector('#latest tbody').innerText.includes('operations')")
        browser.wait("document.querySelector('#kernels tbody').innerText.includes('tanh')")
        browser.wait("document.querySelector('.pool')")
        assert "high water" in browser.evaluate(
            "document.querySelector('.pool [role=img]').getAttribute('aria-label')"
        )
        browser.wait("document.getElementById('log').innerText.includes('session')")
        browser.wait("document.getElementById('cache').textContent.includes('hits')")
        browser.wait(
            "/ % of [\\d,]+ operations/.test(document.getElementById('cache').textContent)"
        )
        browser.wait(
            "document.getElementById('tiles').innerText.includes('announced uploads found')"
        )

        # The drawing, by keyboard alone.
        browser.wait("document.querySelectorAll('#graph-scroll svg g > g').length >= 4")
        assert browser.evaluate("document.querySelectorAll('#graph-scroll .edge').length") >= 3
        browser.evaluate("document.querySelector('#graph-list button').focus()")
        browser.press("Tab")
        while browser.evaluate("document.activeElement.id") != "graph-scroll":
            browser.press("Tab")
        for _ in range(3):
            browser.press("ArrowDown")
        detail = browser.evaluate("document.getElementById('graph-detail').textContent")
        assert "→ float32[" in detail
        assert "bytes" in detail or " B" in detail

        light = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.look(dark=True)
        browser.wait(f"getComputedStyle(document.body).backgroundColor !== {light!r}")
        browser.look(width=390, height=840)
        browser.wait("innerWidth === 390")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        assert browser.evaluate("document.querySelector('#sessions td').offsetWidth") < 200

        server.kill()
        browser.wait("document.getElementById('link').dataset.state === 'lost'")
        refused = [line for line in browser.console if "ERR_" not in line]
        assert refused == [], "the page broke its own policy, or failed"
