"""Both sides' logs at their fullest: lines that a person can read, and no secrets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.transport import Ticket
from servers import ServerProcess

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (server|client|link) \S.*")
MARKER = 0x7E57AB1E
"""An element of an array, which is nobody's business either."""


def test_full_logs_are_read_by_people_and_hold_no_secrets(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "s", config="[server.logger]\nlevel = 'full'\n") as server:
        secret = Ticket.parse(server.ticket).token
        log = tmp_path / "client.log"
        config = load_config(remote__logger__level="full", remote__logger__file=str(log))
        with gw.connect(server.ticket, config=config) as dev:
            x = gw.asarray(np.full(8, MARKER, np.int32), device=dev)
            for _ in range(4):
                assert int(gw.max(x + x - x)) == MARKER
        wrong = "0123456789abcdef" * 2
        with pytest.raises(gw.errors.TokenRejected):
            gw.connect(server.ticket.replace(secret, wrong), config=config)
    texts = (server.log.read_text(), log.read_text())
    for text in texts:
        lines = text.splitlines()
        assert lines
        assert [line for line in lines if not LINE.fullmatch(line)] == []
        for hidden in (secret, wrong, str(MARKER)):
            assert hidden not in text
    assert "TokenRejected" in texts[0]
    assert "run again" in texts[1], "each run of a known graph is a line"
