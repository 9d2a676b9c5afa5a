"""Constants (Array API standard, "Constants"): Python numbers, so they never widen an array."""

from __future__ import annotations

import math

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
