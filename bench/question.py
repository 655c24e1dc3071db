# SPDX-License-Identifier: MIT
"""What a question is. It has lines; a line is one contender, measured at some x (a size, a number of queue pairs) or
once for all x. Within a round the contenders take turns at each x, so that a noisy moment hits all."""
from dataclasses import dataclass, field
from typing import Callable, Optional

import worlds

OURS, RIVAL, FLOOR, INFO = "ours", "rival", "floor", "information"


@dataclass
class Line:
    name: str
    role: str
    measure: Callable  # (programs, world, x) -> dictionary with the fields below, or None
    xs: Optional[list] = None  # None: once, whatever x


@dataclass
class Field:
    """One figure of a measurement; each becomes a chart."""
    key: str
    title: str
    unit: str
    higher_is_better: bool = False
    log: bool = True
    x_from: int = 0        # drawn from there on
    tabled: bool = True
    name: str = ""         # of the chart's file, behind the question's


@dataclass
class Question:
    key: str
    title: str
    note: str
    lines: list
    fields: list
    x_label: Optional[str] = None  # None: bars, one per line
    x_is_size: bool = False
    rival: Optional[str] = None  # the line that ratios are taken to
    worlds: tuple = field(default=worlds.LINKS)
