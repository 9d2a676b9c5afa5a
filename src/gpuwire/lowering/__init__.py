"""Op-graph → kernel plan → launches; host fallbacks in NumPy."""

from gpuwire.lowering.lowering import Lowering
from gpuwire.lowering.values import Value

__all__ = ["Lowering", "Value"]
