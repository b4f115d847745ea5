"""The table from the `fn` of a golden entry to the call that computes it.

`CALLS` maps names to functions of the entry's inputs; what they return has the shape of the entry's "expected". The parts lie
beside: one module per family of estimators. Entries of the same functions that are added later go through the same calls.
"""

from __future__ import annotations

from collections.abc import Callable

import golden_coupling
import golden_plurality
import golden_two_call

CALLS: dict[str, Callable[[dict], object]] = golden_plurality.CALLS | golden_two_call.CALLS | golden_coupling.CALLS
