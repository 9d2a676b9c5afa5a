"""Finding `gpuwire.toml`, and the order of strength: file, environment, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwire.config import RemoteConfig, find_config_file, load_config
from gpuwire.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory: no file of the developer's is found from there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(directory: Path, text: str) -> Path:
    file = directory / "gpuwire.toml"
    file.write_text(text)
    return file


def test_no_file_is_fine() -> None:
    assert find_config_file() is None
    assert load_config().remote.flush_threshold == 4


def test_the_nearest_file_upwards_is_found(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(elsewhere, "[remote]\nflush_threshold = 8\n")
    below = elsewhere / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert load_config().remote.flush_threshold == 8
    write(elsewhere / "a", "[remote]\nflush_threshold = 9\n")
    assert load_config().remote.flush_threshold == 9


def test_every_section_can_be_written(elsewhere: Path) -> None:
    write(
        elsewhere,
        """
        [remote]
        flush_threshold = 2
        flush_bytes_threshold = 65536
        segmentation_offload = true
        quic_engine = "aioquic"
        graph_cache = false
        connect_timeout_seconds = 3
        request_timeout_seconds = 2.5
        heartbeat_seconds = 1
        resume_grace_seconds = 0
        upload_cache = true
        [remote.logger]
        file = "remote.log"
        append = false
        stdout = true
        stderr = true
        log = "debug"
        level = "full"
        [memory]
        persistent_memory = "size-match"
        [memory.logger]
        level = "basic"
        [memory.cuda]
        allocator = "async"
        [streaming]
        max_streams = 2
        [compute]
        watchdog_seconds = 5
        [server]
        host = "::1"
        port = 0
        devices = [1, 0]
        state_dir = "state"
        """,
    )
    config = load_config()
    assert config.remote.connect_timeout_seconds == 3.0
    assert config.remote.logger.level == "full"
    assert config.memory.persistent_memory == "size-match"
    assert config.memory.cuda.allocator == "async"
    assert config.streaming.max_streams == 2
    assert config.compute.watchdog_seconds == 5.0
    assert config.server.devices == (1, 0)


def test_relative_paths_start_at_the_file(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(elsewhere, '[remote.logger]\nfile = "a.log"\n[server]\nstate_dir = "state"\n')
    (elsewhere / "deep").mkdir()
    monkeypatch.chdir(elsewhere / "deep")
    config = load_config()
    assert config.remote.logger.file == elsewhere / "a.log"
    assert config.server.state_dir == elsewhere / "state"


def test_variables_are_stronger_than_the_file_and_arguments_than_both(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(elsewhere, "[remote]\nflush_threshold = 8\nheartbeat_seconds = 7\n")
    monkeypatch.setenv("GPUWIRE_REMOTE__FLUSH_THRESHOLD", "16")
    assert load_config().remote.flush_threshold == 16
    assert load_config(remote={"flush_threshold": 32}).remote.flush_threshold == 32
    assert load_config(remote__flush_threshold=64).remote.flush_threshold == 64
    assert load_config(remote=RemoteConfig(flush_threshold=4)).remote.flush_threshold == 4
    assert load_config(remote__flush_threshold=64).remote.heartbeat_seconds == 7


def test_variables_are_read_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWIRE_REMOTE__SEGMENTATION_OFFLOAD", "true")
    monkeypatch.setenv("GPUWIRE_REMOTE__LOGGER__FILE", "/tmp/x.log")
    monkeypatch.setenv("GPUWIRE_MEMORY__CUDA__ALLOCATOR", "async")
    monkeypatch.setenv("GPUWIRE_SERVER__DEVICES", "0, 2")
    config = load_config()
    assert config.remote.segmentation_offload is True
    assert config.remote.logger.file == Path("/tmp/x.log")
    assert config.memory.cuda.allocator == "async"
    assert config.server.devices == (0, 2)


def test_the_ticket_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWIRE_URL", "gpuwire://localhost")
    assert load_config() == load_config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[remote]\nflush_treshold = 1\n",
            "unknown key remote.flush_treshold; did you mean",
        ),
        ("[remote]\nflush_threshold = '4'\n", "remote.flush_threshold: wanted a valid integer"),
        ("[memory]\npools = []\n", "memory.pools: memory pool layouts are set from code"),
        ("remote = 3\n", "remote: wanted"),
        ("[remote\n", "not valid TOML.*line 1"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(elsewhere: Path, text: str, message: str) -> None:
    file = write(elsewhere, text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config()
    assert str(caught.value).startswith(f"{file}: ")
    assert caught.value.file == str(file)


def test_a_named_file_must_be_there(elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(elsewhere / "absent.toml")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GPUWIRE_REMOTE__FLUSH_THRESHOLD", "many", "GPUWIRE_REMOTE__FLUSH_THRESHOLD: wanted"),
        (
            "GPUWIRE_REMOTE__FLUSH_TRESHOLD",
            "1",
            "GPUWIRE_REMOTE__FLUSH_TRESHOLD; did you mean GPUWIRE_REMOTE__FLUSH_THRESHOLD",
        ),
        (
            "GPUWIRE_REMOTE_FLUSH_THRESHOLD",
            "1",
            "did you mean GPUWIRE_REMOTE__FLUSH_THRESHOLD",
        ),
        ("GPUWIRE_PORT", "1", "did you mean GPUWIRE_SERVER__PORT"),
        ("GPUWIRE_REMOTE", "1", "unknown variable GPUWIRE_REMOTE"),
        ("GPUWIRE_MEMORY__POOLS", "1", "set from code"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config()
    assert caught.value.file == variable


def test_a_mistake_in_an_argument_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"unknown key remote\.flush_treshold; did you mean"):
        load_config(remote__flush_treshold=1)
    with pytest.raises(ConfigError, match=r"unknown key port; did you mean server\.port"):
        load_config(port=1)
