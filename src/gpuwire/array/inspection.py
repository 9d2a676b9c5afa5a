"""What the namespace can do (Array API standard, "Inspection")."""

from __future__ import annotations

from typing import Any

from gpuwire.array.connecting import default_device, place_of
from gpuwire.array.data_type_functions import isdtype
from gpuwire.array.devices import ArrayDevice
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES, DType
from gpuwire.ir.tensors import MAX_RANK


class NamespaceInfo:
    """Asks the namespace about itself. A method without `device` is about the default device, and
    may connect to it."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing works (reading by a mask waits); no function has a result whose shape
        depends on values; the most dimensions of an array."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": False,
            "max dimensions": MAX_RANK,
        }

    def default_device(self) -> ArrayDevice:
        """The device of arrays that name none."""
        return default_device()

    def default_dtypes(self, *, device: ArrayDevice | None = None) -> dict[str, DType]:
        """The types of arrays that name none, by kind."""
        place = place_of(device)
        return {
            "real floating": place.default_float,
            "complex floating": dt.complex_of(place.default_float),
            "integral": place.default_int,
            "indexing": place.default_int,
        }

    def devices(self) -> list[ArrayDevice]:
        """The devices that `device=` takes without connecting further: the default one."""
        return [default_device()]

    def dtypes(
        self, *, device: ArrayDevice | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The data types of the standard that arrays of the device may have, by name; of one kind
        or several, as `isdtype` names them. (float16 is not the standard's; ask
        `device.supports(gpuwire.float16)`.)"""
        place = place_of(device)
        return {
            dtype.name: dtype
            for dtype in ALL_DTYPES
            if place.supports(dtype)
            and dtype is not dt.float16
            and (kind is None or isdtype(dtype, kind))
        }


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807
    """What this namespace can do."""
    return NamespaceInfo()
