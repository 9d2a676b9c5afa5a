"""The array (Array API standard, "Array object"): operators, attributes, indexing, conversion.

An `Array` is a light name for a tensor on a device. Tensors never change, so copies and
reshapes share them freely; `x[key] = value` and `x += y` give the `Array` object another tensor,
which every reference to that same object sees. Unlike NumPy's, a slice or transpose is therefore no
view: writing to it leaves the array it came from as it was.

Nothing waits except what needs values on this machine: conversion to NumPy or to a Python
number, `tolist`, `repr`, indexing with a boolean mask, `bool(x)`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from gpuwire.array import assignment, interop, operators, selection
from gpuwire.array.devices import ArrayDevice, ArrayTensor
from gpuwire.array.printing import array_repr, array_str
from gpuwire.array.products import matmul
from gpuwire.array.recording import binary, permuted, unary
from gpuwire.errors import DTypeError, NotSupported, ShapeError
from gpuwire.ir.dtypes import DType, PythonScalar
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Shape

Other = Any
"""The partner of an operator: an array of the same device or a number; checked at run time."""

_ABS = OPERATIONS["abs"]
_ADD = OPERATIONS["add"]
_AND = OPERATIONS["bitwise_and"]
_DIVIDE = OPERATIONS["divide"]
_EQUAL = OPERATIONS["equal"]
_FLOOR_DIVIDE = OPERATIONS["floor_divide"]
_GREATER = OPERATIONS["greater"]
_GREATER_EQUAL = OPERATIONS["greater_equal"]
_INVERT = OPERATIONS["bitwise_invert"]
_LEFT_SHIFT = OPERATIONS["bitwise_left_shift"]
_LESS = OPERATIONS["less"]
_LESS_EQUAL = OPERATIONS["less_equal"]
_MULTIPLY = OPERATIONS["multiply"]
_NEGATIVE = OPERATIONS["negative"]
_NOT_EQUAL = OPERATIONS["not_equal"]
_OR = OPERATIONS["bitwise_or"]
_POSITIVE = OPERATIONS["positive"]
_POW = OPERATIONS["pow"]
_REMAINDER = OPERATIONS["remainder"]
_RIGHT_SHIFT = OPERATIONS["bitwise_right_shift"]
_SUBTRACT = OPERATIONS["subtract"]
_XOR = OPERATIONS["bitwise_xor"]


class Array:
    """An n-dimensional array on a device. Made by `gpuwire.asarray` and the other functions of the
    namespace, never by calling the class."""

    __slots__ = ("__weakref__", "_device", "_tensor")

    __array_priority__ = 1000.0
    # NumPy's operators leave `numpy_array + x` to us, and its functions refuse x by name.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: ArrayTensor, device: ArrayDevice) -> None:
        self._tensor = tensor
        self._device = device

    def _sibling(self, tensor: ArrayTensor) -> Array:
        return Array(tensor, self._device)

    # --- Attributes --------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The data type of the elements."""
        return self._tensor.type.dtype

    @property
    def shape(self) -> Shape:
        """The length of each dimension."""
        return self._tensor.type.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._tensor.type.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._tensor.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._tensor.type.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._tensor.type.dtype.itemsize

    @property
    def device(self) -> ArrayDevice:
        """The device that the elements lie on."""
        return self._device

    @property
    def T(self) -> Array:  # noqa: N802
        """The transpose of a two-dimensional array; `ShapeError` for others, which have `mT` and
        `permute_dims`."""
        if self.ndim != 2:
            raise ShapeError(
                f".T is for two dimensions, and this array has {self.ndim}; "
                "use .mT for a stack of matrices or permute_dims(x, axes)",
                operation="permute_dims",
            )
        return permuted(self, (1, 0))

    @property
    def mT(self) -> Array:  # noqa: N802
        """The transpose of the last two dimensions; `ShapeError` if there are fewer."""
        rank = self.ndim
        if rank < 2:
            raise ShapeError(
                f".mT wants at least two dimensions, and this array has {rank}",
                operation="permute_dims",
            )
        return permuted(self, (*range(rank - 2), rank - 1, rank - 2))

    # --- Arithmetic: numbers; `/` of integers gives the default float ------------------------

    def __pos__(self) -> Array:
        return unary(_POSITIVE, self)

    def __neg__(self) -> Array:
        return unary(_NEGATIVE, self)

    def __abs__(self) -> Array:
        return unary(_ABS, self)

    def __add__(self, other: Other) -> Array:
        return operators.apply(_ADD, self, other)

    def __radd__(self, other: Other) -> Array:
        return operators.apply_reflected(_ADD, self, other)

    def __iadd__(self, other: Other) -> Array:
        return operators.apply_in_place(_ADD, self, other)

    def __sub__(self, other: Other) -> Array:
        return operators.apply(_SUBTRACT, self, other)

    def __rsub__(self, other: Other) -> Array:
        return operators.apply_reflected(_SUBTRACT, self, other)

    def __isub__(self, other: Other) -> Array:
        return operators.apply_in_place(_SUBTRACT, self, other)

    def __mul__(self, other: Other) -> Array:
        return operators.apply(_MULTIPLY, self, other)

    def __rmul__(self, other: Other) -> Array:
        return operators.apply_reflected(_MULTIPLY, self, other)

    def __imul__(self, other: Other) -> Array:
        return operators.apply_in_place(_MULTIPLY, self, other)

    def __truediv__(self, other: Other) -> Array:
        return operators.divide(_DIVIDE, self, other)

    def __rtruediv__(self, other: Other) -> Array:
        return operators.divide(_DIVIDE, self, other, reflected=True)

    def __itruediv__(self, other: Other) -> Array:
        return operators.apply_in_place(_DIVIDE, self, other)

    def __floordiv__(self, other: Other) -> Array:
        return operators.apply(_FLOOR_DIVIDE, self, other)

    def __rfloordiv__(self, other: Other) -> Array:
        return operators.apply_reflected(_FLOOR_DIVIDE, self, other)

    def __ifloordiv__(self, other: Other) -> Array:
        return operators.apply_in_place(_FLOOR_DIVIDE, self, other)

    def __mod__(self, other: Other) -> Array:
        return operators.apply(_REMAINDER, self, other)

    def __rmod__(self, other: Other) -> Array:
        return operators.apply_reflected(_REMAINDER, self, other)

    def __imod__(self, other: Other) -> Array:
        return operators.apply_in_place(_REMAINDER, self, other)

    def __divmod__(self, other: Other) -> tuple[Array, Array]:
        return self // other, self % other

    def __pow__(self, other: Other) -> Array:
        operators.check_exponent(self, other)
        return operators.apply(_POW, self, other)

    def __rpow__(self, other: Other) -> Array:
        return operators.apply_reflected(_POW, self, other)

    def __ipow__(self, other: Other) -> Array:
        operators.check_exponent(self, other)
        return operators.apply_in_place(_POW, self, other)

    def __matmul__(self, other: Other) -> Array:
        return NotImplemented if operators.is_other_class(self, other) else matmul(self, other)

    def __rmatmul__(self, other: Other) -> Array:
        operators.refuse_numpy("matmul", other)
        return NotImplemented

    def __imatmul__(self, other: Other) -> Array:
        return operators.replace(self, self @ other, "matmul")

    # --- Bits and booleans: integers or booleans ---------------------------------------------

    def __invert__(self) -> Array:
        return unary(_INVERT, self)

    def __and__(self, other: Other) -> Array:
        return operators.apply(_AND, self, other)

    def __rand__(self, other: Other) -> Array:
        return operators.apply_reflected(_AND, self, other)

    def __iand__(self, other: Other) -> Array:
        return operators.apply_in_place(_AND, self, other)

    def __or__(self, other: Other) -> Array:
        return operators.apply(_OR, self, other)

    def __ror__(self, other: Other) -> Array:
        return operators.apply_reflected(_OR, self, other)

    def __ior__(self, other: Other) -> Array:
        return operators.apply_in_place(_OR, self, other)

    def __xor__(self, other: Other) -> Array:
        return operators.apply(_XOR, self, other)

    def __rxor__(self, other: Other) -> Array:
        return operators.apply_reflected(_XOR, self, other)

    def __ixor__(self, other: Other) -> Array:
        return operators.apply_in_place(_XOR, self, other)

    def __lshift__(self, other: Other) -> Array:
        return operators.apply(_LEFT_SHIFT, self, other)

    def __rlshift__(self, other: Other) -> Array:
        return operators.apply_reflected(_LEFT_SHIFT, self, other)

    def __ilshift__(self, other: Other) -> Array:
        return operators.apply_in_place(_LEFT_SHIFT, self, other)

    def __rshift__(self, other: Other) -> Array:
        return operators.apply(_RIGHT_SHIFT, self, other)

    def __rrshift__(self, other: Other) -> Array:
        return operators.apply_reflected(_RIGHT_SHIFT, self, other)

    def __irshift__(self, other: Other) -> Array:
        return operators.apply_in_place(_RIGHT_SHIFT, self, other)

    # --- Comparison: elementwise, booleans ---------------------------------------------------

    def __eq__(self, other: Other) -> Array:  # type: ignore[override]
        return operators.apply(_EQUAL, self, other)

    def __ne__(self, other: Other) -> Array:  # type: ignore[override]
        return operators.apply(_NOT_EQUAL, self, other)

    def __lt__(self, other: Other) -> Array:
        return operators.apply(_LESS, self, other)

    def __le__(self, other: Other) -> Array:
        return operators.apply(_LESS_EQUAL, self, other)

    def __gt__(self, other: Other) -> Array:
        return operators.apply(_GREATER, self, other)

    def __ge__(self, other: Other) -> Array:
        return operators.apply(_GREATER_EQUAL, self, other)

    # --- Indexing ----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Array:
        """The elements that `key` selects, as in NumPy; always an array, zero-dimensional for
        single elements.

        Integers, slices with any step, `...`, None; a boolean mask (read first: this waits,
        because the result's shape depends on its values); integer arrays next to each other. An
        index array on the device is not checked: what is out of bounds is clamped. Raises
        `IndexingError`, and `NotSupported` for index arrays that slices separate.
        """
        return selection.read(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Replaces the selected elements by `value`, broadcast and converted to this array's type.

        The key as for reading. Waits for index arrays that lie on the device, and for a mask where
        the value has an element for each place it takes; host arrays and slices do not wait.
        `IndexingError` if the value does not broadcast to the selection. Other arrays that this one
        was cut from, or that were cut from it, stay as they are.
        """
        self._tensor = assignment.written(self, key, value)._tensor

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("len() of a zero-dimensional array")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.shape:
            raise DTypeError("iteration over a zero-dimensional array")
        return (self[index] for index in range(self.shape[0]))

    def __contains__(self, value: Other) -> bool:
        equal = binary(_EQUAL, self, value)
        return bool(interop.read(equal).any())

    # --- To Python and NumPy: each of these waits --------------------------------------------

    def item(self) -> PythonScalar:
        """The only element, as a Python number; `ShapeError` if there are more. Waits."""
        if self.size != 1:
            raise ShapeError(f"item() wants one element, and this array has shape {self.shape}")
        value: PythonScalar = interop.read(self).item()
        return value

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers. Waits."""
        return interop.read(self).tolist()

    def to_numpy(self) -> Any:
        """The elements as a fresh, writable `numpy.ndarray`: at once on a `Device` (it waits), as
        an awaitable of it on an `aio.AsyncDevice` (`await x.to_numpy()`).

        Raises what made the array fail: `ExecutionError` with the line that recorded the failing
        operation, `DeviceClosed`, `DeviceLost`, `SessionLost`, `RequestTimeout`.
        """
        return interop.to_numpy(self)

    def copy_to_host_async(self) -> None:
        """Asks for the elements and does not wait. A later `numpy.asarray(x)`, `float(x)` or
        `x.to_numpy()` finds them here, or waits for the rest of their way; what made the array fail
        is raised there. They take memory here until the array is no more.

        In a loop that looks at a number of each step, ask for it here and read it a few steps
        later: replies on their way cost nothing.
        """
        self._device.copy_to_host_async(self._tensor)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"an array of shape {self.shape} is neither true nor false; use any(x) or all(x)"
            )
        return bool(interop.read(self).item())

    def __int__(self) -> int:
        return int(self._number("int"))  # type: ignore[arg-type]

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise DTypeError(f"only integers can be an index, not {self.dtype}")
        return operator.index(self._number("index"))  # type: ignore[arg-type]

    def __float__(self) -> float:
        return float(self._number("float"))  # type: ignore[arg-type]

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _number(self, wanted: str) -> PythonScalar:
        if self.shape:
            raise DTypeError(
                f"{wanted}() is for zero-dimensional arrays, and this one has shape {self.shape}; "
                "use x.item() for its only element"
            )
        number: PythonScalar = interop.read(self).item()
        if isinstance(number, complex) and wanted != "complex":
            raise DTypeError(f"{wanted}() of a complex number; use real(x), imag(x) or abs(x)")
        return number

    # --- Interchange -------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For `numpy.asarray(x)`. Always a copy: `copy=False` raises `ArgumentError`."""
        return interop.as_numpy(self, dtype, copy)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The namespace of this array's functions: `gpuwire`."""
        return interop.namespace(api_version)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of a copy in host memory. Waits. `copy=False` and another device than
        the CPU raise `BufferError`, as the standard asks."""
        return interop.dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU: what `__dlpack__` gives is a copy in host memory."""
        return interop.DLPACK_CPU

    def to_device(self, device: ArrayDevice, /, *, stream: object = None) -> Array:
        """This array on `device`: itself if it is there, else a copy by way of this machine, which
        waits. `stream` must be None."""
        return interop.to_device(self, device, stream)

    def __copy__(self) -> Array:
        """Another array of the same elements; they are shared until one of the two is written."""
        return self._sibling(self._tensor)

    def __deepcopy__(self, memo: object) -> Array:
        return self._sibling(self._tensor)

    def __reduce__(self) -> NoReturn:
        raise NotSupported(
            "an array on a device cannot be pickled: its elements are on another machine; "
            "pickle numpy.asarray(x) and send it back with gpuwire.asarray"
        )

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is not there; `x.sum()` is `gpuwire.sum(x)`, as in the standard."""
        hint = f"; use gpuwire.{name}(x, …)" if interop.has_function(name) else ""
        raise AttributeError(f"an array has no attribute {name!r}{hint}", name=name, obj=self)

    # --- Text --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """As NumPy's; of a large array only the edges are read. Waits, and never raises for a
        failed or closed device: it says so instead."""
        return array_repr(self)

    def __str__(self) -> str:
        return array_str(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)
