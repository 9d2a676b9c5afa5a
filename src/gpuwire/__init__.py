"""A GPU in another machine, used from Python as if it were plugged in.

This is an Array API namespace (`zeros`, `sum`, `float32`, …), with `connect` for a server and `aio`
for asyncio. The names are in `gpuwire.array.namespace` and come on first use: importing them all
takes half a second of QUIC and cryptography, which the server's device processes, who import their
own parts of this package, have no use for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwire.array.namespace import *  # noqa: F403

__version__ = "0.1.0"
__array_api_version__ = "2024.12"


def __getattr__(name: str) -> object:
    if name.startswith("__") and name not in ("__all__", "__array_namespace_info__"):
        raise AttributeError(f"module 'gpuwire' has no attribute {name!r}")
    from gpuwire.array import namespace

    globals().update({public: getattr(namespace, public) for public in namespace.__all__})
    globals()["__all__"] = [*namespace.__all__, "__array_api_version__", "__version__"]
    if name not in globals():
        raise AttributeError(f"module 'gpuwire' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc]
