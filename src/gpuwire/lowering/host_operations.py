"""The operations that no kernel does, and why. They run in NumPy on the server's host: correct, but
each costs a round trip to the device and keeps the graph's later operations waiting.

Everything else of the table runs on every data type that its rule allows and the device has.
"""

from __future__ import annotations

from gpuwire.ir.dtypes import DType, Kind

_COMPLEX = frozenset(
    {
        # Branch cuts and the many special values of C17's annex G, for little use on a GPU.
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        # Their real and imaginary parts cancel where the function is small: exp(z) - 1 and its kin
        # need more precision than a pair of the same type has.
        "expm1",
        "log1p",
        "tan",
        "tanh",
        # exp(w log z) loses as many digits as |w log z| has; NumPy's own is better only in part.
        "pow",
        # Products of a circular and a hyperbolic function, with the special values of both.
        "cos",
        "cosh",
        "sin",
        "sinh",
        # Scaled logarithms.
        "log10",
        "log2",
    }
)


def runs_on_host(operation: str, compute: DType) -> bool:
    """Whether an elementwise operation, computed in that type, is left to the host."""
    return compute.kind is Kind.COMPLEX and operation in _COMPLEX
