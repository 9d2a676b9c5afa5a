"""The one place that reads the process's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwire.config.explaining import nearest_name, table_names
from gpuwire.config.models import Config
from gpuwire.errors import ConfigError

PREFIX = "GPUWIRE_"
URL = "GPUWIRE_URL"

StringTable = dict[str, "str | StringTable"]


def ticket_from_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """The ticket in `GPUWIRE_URL`; None where the variable is absent or empty."""
    return (os.environ if environ is None else environ).get(URL) or None


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where a server keeps its key and tokens unless told otherwise (XDG base directories)."""
    environ = os.environ if environ is None else environ
    if state_home := environ.get("XDG_STATE_HOME"):
        return Path(state_home) / "gpuwire"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "gpuwire"


def settings_from_environment(environ: Mapping[str, str] | None = None) -> StringTable:
    """What the `GPUWIRE_…` variables set, as nested tables of strings.

    Two underscores part a table from its key. A variable with our prefix that is no setting is
    refused: a misspelt one would go unnoticed. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    settings: StringTable = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable == URL:
            continue
        key = dotted_key(variable)
        if "." not in key or key in table_names(Config):
            raise _no_setting(variable, key)
        table = settings
        *tables, name = key.split(".")
        for part in tables:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise _no_setting(variable, key)
            table = inner
        table[name] = value
    return settings


def variable_name(key: str) -> str:
    """`remote.flush_threshold` → `GPUWIRE_REMOTE__FLUSH_THRESHOLD`."""
    return PREFIX + key.replace(".", "__").upper()


def dotted_key(variable: str) -> str:
    """`GPUWIRE_REMOTE__FLUSH_THRESHOLD` → `remote.flush_threshold`."""
    return variable.removeprefix(PREFIX).lower().replace("__", ".")


def _no_setting(variable: str, key: str) -> ConfigError:
    nearest = nearest_name(_parted(key), Config)
    hint = (
        f"did you mean {variable_name(nearest)}?"
        if nearest
        else (f"a setting is written {PREFIX}<SECTION>__<KEY>, a ticket {URL}")
    )
    return ConfigError(
        f"environment: unknown variable {variable}; {hint}",
        file=variable,
        key=key,
        nearest=nearest,
    )


def _parted(key: str) -> str:
    """A single underscore after a section's name was meant as two."""
    for section in Config.model_fields:
        if key.startswith(f"{section}_"):
            return f"{section}.{key.removeprefix(f'{section}_')}"
    return key
