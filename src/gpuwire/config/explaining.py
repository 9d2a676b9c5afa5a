"""From pydantic's report to one sentence: where, which key, what was wanted, the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import get_args

from pydantic import BaseModel, ValidationError

from gpuwire.errors import ConfigError

POOLS = (
    "memory pool layouts are set from code, not from configuration: "
    "remove the key and pass the layout to WgpuServer"
)


def explained(
    error: ValidationError,
    model: type[BaseModel],
    *,
    origin: str,
    variable_of: Callable[[str], str] | None = None,
) -> ConfigError:
    """The first thing that is wrong, as a `ConfigError`.

    `origin` is the file, or what else the values came from. `variable_of` turns a dotted key into
    the variable that sets it; with it, the error names the variable instead of a file.
    """
    spelled = variable_of or str
    first = error.errors(include_url=False)[0]
    place = tuple(str(part) for part in first["loc"])
    nearest = None
    if first["type"] != "extra_forbidden":
        key = ".".join(_without_branches(place, model))
        wanted = first["msg"].removeprefix("Input should be ")
        problem = f"{spelled(key)}: wanted {wanted}, found {first['input']!r}"
    else:
        key = ".".join(place)
        if place[-1] == "pools" and (place[0] == "memory" or model.__name__ == "MemoryConfig"):
            problem = f"{spelled(key)}: {POOLS}"
        else:
            nearest = nearest_name(key, model)
            valid = [nearest] if nearest else sibling_names(key, model)
            hint = "did you mean {}?" if nearest else "valid here: {}"
            problem = f"unknown key {spelled(key)}; {hint.format(', '.join(map(spelled, valid)))}"
    return ConfigError(
        f"{origin}: {problem}",
        file=variable_of(key) if variable_of else origin,
        key=key,
        nearest=nearest,
    )


def nearest_name(key: str, model: type[BaseModel]) -> str | None:
    """The valid dotted key most like `key`: first in its own table, then anywhere."""
    name = key.rpartition(".")[2]
    siblings = {sibling.rpartition(".")[2]: sibling for sibling in sibling_names(key, model)}
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)
    if close:
        return siblings[close[0]]
    everywhere = key_names(model)
    elsewhere = [other for other in everywhere if other.rpartition(".")[2] == name]
    if elsewhere:
        return elsewhere[0]
    return next(iter(difflib.get_close_matches(key, everywhere, n=1, cutoff=0.75)), None)


def sibling_names(key: str, model: type[BaseModel]) -> list[str]:
    """The valid dotted keys of the table that `key` lies in."""
    table = key.rpartition(".")[0]
    names = [*key_names(model), *table_names(model)]
    return sorted(name for name in names if name.rpartition(".")[0] == table)


def key_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key that holds a value."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        names += key_names(inner, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return names


def table_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key that holds a table."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner:
            names += [f"{prefix}{name}", *table_names(inner, f"{prefix}{name}.")]
    return names


def _without_branches(place: tuple[str, ...], model: type[BaseModel]) -> tuple[str, ...]:
    """Pydantic adds a step for the branch of a union; the user wrote no such key."""
    known = {*key_names(model), *table_names(model)}
    for length in range(len(place), 0, -1):
        if ".".join(place[:length]) in known:
            return place[:length]
    return place


def _section(annotation: object) -> type[BaseModel] | None:
    candidates = (annotation, *get_args(annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
