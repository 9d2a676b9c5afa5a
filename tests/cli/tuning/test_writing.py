"""The setting in gpuwire.toml: changed there, and nothing else."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwire.cli.tuning.candidates import DEFAULT, Candidate
from gpuwire.cli.tuning.writing import require_writable, write_setting
from gpuwire.config import load_config
from gpuwire.errors import ConfigError

BEST = replace(DEFAULT, flush_threshold=64, segmentation_offload=True)

TEXT = """\
# Ours, since 2024.
[server]
port = 4433   # as the firewall knows it

[remote]
flush_threshold = 8  # tried once
heartbeat_seconds = 2.5

# The log.
[remote.logger]
level = "basic"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gpuwire.toml"


def written(file: Path) -> Candidate:
    return Candidate.of(load_config(file).remote)


def test_comments_order_and_spacing_stay(file: Path) -> None:
    file.write_text(TEXT)
    assert write_setting(file, BEST) == ("flush_threshold", "segmentation_offload")
    text = file.read_text()
    kept = text.replace("segmentation_offload = true\n", "").replace("= 64", "= 8")
    assert kept == TEXT
    assert written(file) == BEST
    assert load_config(file).remote.heartbeat_seconds == 2.5


def test_a_file_is_made_where_there_is_none(file: Path) -> None:
    assert write_setting(file, BEST) == ("flush_threshold", "segmentation_offload")
    assert file.read_text() == "[remote]\nflush_threshold = 64\nsegmentation_offload = true\n"


def test_a_file_without_the_table_gets_it(file: Path) -> None:
    file.write_text("# Mine.\n[server]\nport = 1\n")
    write_setting(file, BEST)
    assert file.read_text().startswith("# Mine.\n[server]\nport = 1\n")
    assert written(file) == BEST


def test_the_default_is_written_over_what_differs_and_not_otherwise(file: Path) -> None:
    assert write_setting(file, DEFAULT) == ()
    assert not file.exists()
    file.write_text(TEXT)
    assert write_setting(file, DEFAULT) == ("flush_threshold",)
    assert written(file) == DEFAULT
    assert "segmentation_offload" not in file.read_text()


def test_a_size_that_is_no_longer_wanted_is_taken_out(file: Path) -> None:
    file.write_text("[remote]\ndatagram_bytes = 1452 # by hand\nflush_threshold = 64\n")
    assert write_setting(file, replace(DEFAULT, flush_threshold=64)) == ("datagram_bytes",)
    assert written(file).datagram_bytes is None


def test_the_files_mode_and_a_link_to_it_stay(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "real.toml"
    target.write_text(TEXT)
    target.chmod(0o640)
    file.symlink_to(target)
    write_setting(file, BEST)
    assert file.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert written(target) == BEST


def test_windows_line_ends_stay(file: Path) -> None:
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    write_setting(file, BEST)
    assert b"heartbeat_seconds = 2.5\r\n" in file.read_bytes()


def test_a_read_only_file_is_known_before_anything_is_measured(file: Path) -> None:
    file.write_text(TEXT)
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        require_writable(file)
    assert file.read_text() == TEXT


def test_a_read_only_directory_too(file: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="read-only"):
            require_writable(file)
    finally:
        tmp_path.chmod(0o755)


def test_a_file_that_is_no_toml_is_left_alone(file: Path) -> None:
    file.write_text("[remote\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        require_writable(file)
    assert file.read_text() == "[remote\n"
