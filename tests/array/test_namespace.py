"""The namespace: complete by the standard, and its gaps listed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import gpuwire as gw
from gpuwire.array.gaps import GAPS
from gpuwire.errors import NotSupported

# Array API 2024.12, all chapters without the optional extensions.
STANDARD = """
    e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace
    meshgrid ones ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype
    result_type bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64
    complex128 abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh
    divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf
    isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or
    logical_xor maximum minimum multiply negative nextafter not_equal positive pow real
    reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take
    take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays broadcast_to
    concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack
    argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts
    unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod
    std sum var all any diff __array_api_version__ __array_namespace_info__
"""

ARRAY_MEMBERS = """
    dtype device mT ndim shape size T __abs__ __add__ __and__ __array_namespace__ __bool__
    __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__
    __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__
    __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__
    to_device __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __ipow__ __imod__
    __imatmul__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ __radd__ __rsub__ __rmul__
    __rtruediv__ __rfloordiv__ __rpow__ __rmod__ __rmatmul__ __rand__ __ror__ __rxor__
    __rlshift__ __rrshift__
"""


@pytest.mark.parametrize("name", STANDARD.split())
def test_every_name_of_the_standard_is_there(name: str) -> None:
    assert hasattr(gw, name)
    assert name in gw.__all__


@pytest.mark.parametrize("name", ARRAY_MEMBERS.split())
def test_every_member_of_an_array_is_there(name: str) -> None:
    assert name in vars(gw.Array)


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.name)
def test_a_gap_says_why_and_what_to_do(gap: object) -> None:
    function = getattr(gw, gap.name)  # type: ignore[attr-defined]
    with pytest.raises(NotSupported, match=f"has no {gap.name}: .*; use numpy"):  # type: ignore[attr-defined]
        function(None)


def test_public_functions_are_documented() -> None:
    undocumented = [
        name
        for name in gw.__all__
        if callable(member := getattr(gw, name)) and not inspect.getdoc(member)
    ]
    assert not undocumented


def test_versions() -> None:
    assert gw.__version__ == version("gpuwire")
    assert gw.__array_api_version__ == "2024.12"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="'fft'"):
        gw.fft  # noqa: B018
    assert not hasattr(gw, "__wrapped__")
    assert {"zeros", "connect", "aio"} <= set(dir(gw))


def test_importing_the_package_alone_loads_no_quic() -> None:
    """A device process has no use for the client, whose import costs half a second."""
    program = "import sys, gpuwire; sys.exit('aioquic' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_star_import_gives_the_namespace() -> None:
    names: dict[str, object] = {}
    exec("from gpuwire import *", names)
    assert names["zeros"] is gw.zeros
    assert names["__array_api_version__"] == "2024.12"


def test_the_standard_s_signatures_are_positional_where_it_says_so() -> None:
    parameters = inspect.signature(gw.sum).parameters
    assert parameters["x"].kind is inspect.Parameter.POSITIONAL_ONLY
    assert parameters["axis"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["dtype"].default is None
