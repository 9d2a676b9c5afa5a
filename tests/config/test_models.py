"""The configuration's models: defaults, refusals, and what a refusal says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpuwire.config import (
    ComputeConfig,
    Config,
    LoggerConfig,
    MemoryConfig,
    RemoteConfig,
    ServerConfig,
    ServerLoggerConfig,
    StreamingConfig,
)
from gpuwire.errors import ConfigError


def test_the_documented_defaults() -> None:
    remote = RemoteConfig()
    assert remote.flush_threshold == 4
    assert remote.flush_bytes_threshold == 1024 * 1024
    assert remote.segmentation_offload is False
    assert remote.quic_engine == "auto"
    assert remote.graph_cache is True
    assert remote.resume_grace_seconds == 60
    assert remote.logger.level == "disabled"
    assert MemoryConfig().persistent_memory == "enabled"
    assert ServerConfig().port == 4433


def test_models_are_frozen_and_compare_by_value() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.remote = RemoteConfig(flush_threshold=1)  # type: ignore[misc]
    assert config == Config()
    assert hash(config) == hash(Config())


@pytest.mark.parametrize(
    ("model", "values", "key", "nearest"),
    [
        (RemoteConfig, {"flush_treshold": 1}, "flush_treshold", "flush_threshold"),
        (RemoteConfig, {"logger": {"levl": "basic"}}, "logger.levl", "logger.level"),
        (StreamingConfig, {"max_stream": 1}, "max_stream", "max_streams"),
        (ComputeConfig, {"watchdog": 1}, "watchdog", "watchdog_seconds"),
        (Config, {"remotes": {}}, "remotes", "remote"),
    ],
)
def test_an_unknown_key_names_the_nearest_valid_one(
    model: type, values: dict[str, object], key: str, nearest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        model(**values)
    assert caught.value.key == key
    assert caught.value.nearest == nearest
    assert f"unknown key {key}; did you mean {nearest}?" in str(caught.value)


def test_an_unknown_key_like_no_other_lists_what_is_valid_there() -> None:
    with pytest.raises(ConfigError, match="valid here: watchdog_seconds") as caught:
        ComputeConfig(zzz=1)  # type: ignore[call-arg]
    assert caught.value.nearest is None


@pytest.mark.parametrize(
    ("model", "values", "key"),
    [
        (RemoteConfig, {"flush_threshold": "16"}, "flush_threshold"),
        (RemoteConfig, {"flush_threshold": True}, "flush_threshold"),
        (RemoteConfig, {"flush_threshold": 0}, "flush_threshold"),
        (RemoteConfig, {"graph_cache": 1}, "graph_cache"),
        (RemoteConfig, {"request_timeout_seconds": "soon"}, "request_timeout_seconds"),
        (RemoteConfig, {"heartbeat_seconds": float("nan")}, "heartbeat_seconds"),
        (MemoryConfig, {"persistent_memory": "sometimes"}, "persistent_memory"),
        (MemoryConfig, {"cuda": {"allocator": "lazy"}}, "cuda.allocator"),
        (ServerConfig, {"port": 65536}, "port"),
        (ServerConfig, {"devices": [0, -1]}, "devices"),
        (LoggerConfig, {"level": "loud"}, "level"),
    ],
)
def test_a_wrong_value_names_the_key_and_what_was_found(
    model: type, values: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError, match=r"wanted .*, found ") as caught:
        model(**values)
    assert caught.value.key == key
    assert key in str(caught.value)


def test_pool_layouts_are_refused_with_the_way_that_works() -> None:
    for make in (lambda: MemoryConfig(pools=[]), lambda: Config(memory={"pools": {}})):  # type: ignore[call-arg, arg-type]
        with pytest.raises(ConfigError, match="set from code"):
            make()


def test_the_servers_log_speaks_unless_told_not_to() -> None:
    assert ServerConfig().logger.level == "basic"
    assert ServerConfig(logger=ServerLoggerConfig(stdout=True)).logger.level == "basic"
    assert ServerConfig(logger=LoggerConfig()).logger.level == "disabled"  # type: ignore[arg-type]
