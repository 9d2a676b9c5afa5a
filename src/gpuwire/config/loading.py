"""Finding and loading the configuration: a file, the environment over it, arguments over both."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuwire.config.environment import settings_from_environment, variable_name
from gpuwire.config.explaining import explained
from gpuwire.config.models import Config, Section
from gpuwire.errors import ConfigError

FILE_NAME = "gpuwire.toml"

Table = dict[str, Any]


def load_config(path: str | Path | None = None, **overrides: Any) -> Config:
    """The configuration of this process.

    `path` names the file; without it `gpuwire.toml` is looked for in the working directory and
    upwards, and none is fine. `overrides` are sections (`remote={"flush_threshold": 8}`, or
    `remote=RemoteConfig(flush_threshold=8)`, of which what was set counts) or single keys
    (`remote__flush_threshold=8`). Raises ConfigError.
    """
    file = Path(path) if path is not None else find_config_file()
    layers = [
        _from_file(file) if file is not None else Config(),
        _from_environment(),
        _from_arguments(overrides),
    ]
    merged: Table = {}
    for layer in layers:
        _merge(merged, layer.model_dump(exclude_unset=True))
    return Config(**merged)


def find_config_file(start: Path | None = None) -> Path | None:
    """The nearest `gpuwire.toml` in `start` (the working directory) and the directories above."""
    start = (start or Path.cwd()).absolute()
    candidates = (directory / FILE_NAME for directory in (start, *start.parents))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _from_file(file: Path) -> Config:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read: {reason}", file=str(file)) from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not valid TOML: {error}", file=str(file)) from error
    try:
        config = Config.model_validate(table)
    except ValidationError as error:
        raise explained(error, Config, origin=str(file)) from None
    return _anchored(config, file.absolute().parent)


def _from_environment() -> Config:
    settings = settings_from_environment()
    try:
        # Variables are text: here "16" is a number, which it is not in a file.
        return Config.model_validate_strings(settings, strict=False)
    except ValidationError as error:
        raise explained(error, Config, origin="environment", variable_of=variable_name) from None


def _from_arguments(overrides: Mapping[str, Any]) -> Config:
    table: Table = {}
    for name, value in overrides.items():
        *tables, key = name.split("__")
        nested: Table = (
            {key: value.model_dump(exclude_unset=True)}
            if isinstance(value, Section)
            else {key: value}
        )
        for outer in reversed(tables):
            nested = {outer: nested}
        _merge(table, nested)
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise explained(error, Config, origin="arguments") from None


def _merge(into: Table, table: Mapping[str, Any]) -> None:
    """Lays `table` over `into`, table by table."""
    for name, value in table.items():
        present = into.get(name)
        if isinstance(value, Mapping) and isinstance(present, dict):
            _merge(present, value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _anchored(config: Config, directory: Path) -> Config:
    """Relative paths in a file start at that file, wherever the program was started."""
    table = config.model_dump(exclude_unset=True)
    for section, key in (("remote", "logger"), ("memory", "logger"), ("server", "logger")):
        logger = table.get(section, {}).get(key, {})
        if logger.get("file") is not None:
            logger["file"] = directory / logger["file"]
    server = table.get("server", {})
    for name in ("state_dir", "upload_cache_dir"):
        if server.get(name) is not None:
            server[name] = directory / server[name]
    return Config(**table)
