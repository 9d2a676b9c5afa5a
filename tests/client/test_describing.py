"""What a device says of itself, at the prompt and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np

from gpuwire.client import connect
from gpuwire.client.describing import as_html


class Rows(HTMLParser):
    """The rows of a table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1][-1] += data


def test_the_counts_of_a_session_are_in_its_repr(server_ticket: str) -> None:
    with connect(server_ticket) as dev:
        dev.read(dev.upload(np.zeros(1024 * 1024, np.float32)))
        shown = repr(dev)
        assert "\n" not in shown
        assert dev.info.name in shown and dev.address in shown
        assert "away by aioquic" in shown or "away by qh3" in shown
        assert "2 tasks in 2 frames, 4 MiB sent, 4 MiB received" in shown
        rows = dict(Rows(dev._repr_html_()).rows)
        assert rows["session"] == "open"
        assert rows["sent"].startswith("4 MiB")
        assert rows["path"].startswith(dev.path.address)
        assert dev.info.name in rows["device"]
    assert "; closed; " in repr(dev)
    assert dict(Rows(dev._repr_html_()).rows)["session"] == "closed"


def test_names_from_a_server_are_no_markup() -> None:
    html = as_html("<b>", [("<i>", "<script>alert(1)</script>")])
    assert "<script" not in html and "<i>" not in html and "<b>" not in html
