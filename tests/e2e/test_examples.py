"""The main job, as `scripts/quickstart` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from servers import clean_environment

DIGITS = Path(__file__).parents[2] / "scripts" / "examples" / "digits.py"


def test_digits_reaches_numpys_accuracy_and_tells_the_facts() -> None:
    """Without a ticket, so that it starts a server of its own, in a process of its own."""
    run = subprocess.run(
        [sys.executable, str(DIGITS)],
        env=clean_environment(NO_COLOR="1", COLUMNS="100"),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    facts = dict(
        re.split(r"\s{2,}", line.strip(), maxsplit=1)
        for line in run.stdout.splitlines()
        if re.search(r"^\w[\w ]*\s{2,}\S", line)
    )
    assert float(facts["test accuracy"].split()[0]) >= 0.95
    assert {"device", "path", "steps per second", "tasks per frame", "bytes sent"} <= facts.keys()
    assert int(facts["frames sent"].replace(",", "")) < int(facts["tasks sent"].replace(",", ""))
