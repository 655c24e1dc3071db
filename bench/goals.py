# SPDX-License-Identifier: MIT
"""The figures we want, and whether they were reached."""
from dataclasses import dataclass
from typing import Optional

MIB = 1 << 20


@dataclass
class Goal:
    """Ours over the rival (times better) is at least `factor`; or, without a rival, the figure is at most `limit`."""
    question: str
    world: str
    line: str
    x: Optional[int]
    rival: Optional[str] = None
    factor: float = 1.0
    limit: Optional[float] = None
    field: str = "value"
    rival_x: Optional[int] = None  # a line may be its own rival, elsewhere

    def text(self):
        what = {"bandwidth": f"ib_{self.line}_bw, 1 MiB", "latency": f"ib_{self.line}_lat, 8 B",
                "message_us": f"cost of a message, {self.x} queue pairs", "qp_kib": "memory of an idle queue pair"}
        return what.get(self.question) or what[self.field]

    def against(self):
        return f"{self.rival_x} queue pair" if self.rival_x else self.rival


GOALS = (
    [Goal("bandwidth", "veth-9000", v, MIB, "iperf3", f) for v, f in (("write", 1.2), ("send", 1.2), ("read", 1.0))] +
    [Goal("bandwidth", "veth-1500", v, MIB, "iperf3", 0.9) for v in ("write", "send", "read")] +
    [Goal("latency", w, v, 8, r) for w in ("veth-9000", "veth-1500") for v in ("write", "send")
     for r in ("TCP spinning", "TCP blocking")] +
    [Goal("connections", "loopback", "anyrdma", 1000, limit=64, field="qp_kib"),
     Goal("connections", "loopback", "anyrdma", 1000, "anyrdma", 0.9, field="message_us", rival_x=1)])


@dataclass
class Verdict:
    goal: Goal
    ours: float
    rival: Optional[float]
    unit: str
    ratio: Optional[float]  # above 1: ours is better
    reached: bool


def judge(results, goal):
    """None when one of the two figures is not there."""
    f = results.field(goal.question, goal.field)
    ours = results.median(goal.question, goal.world, goal.line, goal.x, goal.field)
    if ours is None:
        return None
    if goal.limit is not None:
        return Verdict(goal, ours, goal.limit, f.unit, goal.limit / ours, ours <= goal.limit)
    rival = results.median(goal.question, goal.world, goal.rival, goal.rival_x or goal.x, goal.field)
    if rival is None:
        return None
    ratio = ours / rival if f.higher_is_better else rival / ours
    return Verdict(goal, ours, rival, f.unit, ratio, ratio >= goal.factor)


def judge_all(results):
    return [v for v in (judge(results, g) for g in GOALS) if v]
