# SPDX-License-Identifier: MIT
"""The figures we want, and whether they were reached."""
from dataclasses import dataclass
from typing import Optional

MIB = 1 << 20
VETH = ("veth-9000", "veth-1500")


@dataclass
class Goal:
    """Ours over the rival (times better) is at least `factor`; or, without a rival, the figure is no worse than `limit`."""
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
        verb, _, how = self.line.partition(",")
        size = "1 MiB" if self.x == MIB else f"{(self.x or 0) >> 10} KiB"
        what = {"bandwidth": f"ib_{verb}_bw, {size}{how}", "latency": f"ib_{verb}_lat, 8 B{how}", "rate": f"ib_{verb}_bw, 8 B, -q {self.x}",
                "message_us": f"cost of a message, {self.x} queue pairs", "qp_kib": "memory of an idle queue pair"}
        kind, _, asked = self.question.rpartition("-")
        return "iWARP " * (kind == "iwarp") + (what.get(asked) or what[self.field])

    def against(self):
        return f"{self.rival_x} queue pair" if self.rival_x else self.rival


def memory():
    """On one host; a factor below 1 is how much worse than a floor, or than our WRITE, it may be."""
    def goals(question, line, x, *rivals):
        return [Goal(f"memory-{question}", "memory", line, x, rival, factor) for rival, factor in rivals]

    return (
        goals("latency", "write", 8, ("cache line", 1 / 2), ("UCX put", 1.0), ("TCP", 50.0)) +
        goals("latency", "send", 8, ("UCX tag", 1.0)) +
        goals("latency", "read", 8, ("write", 1 / 1.5)) + goals("latency", "atomic", 8, ("write", 1 / 1.5)) +
        goals("latency", "write, by copy", 8, ("process_vm_writev", 1 / 1.5)) +
        [goal for size in (65536, MIB) for verb in ("write", "read", "send") for goal in
         goals("bandwidth", verb, size, ("memcpy", 0.95), ("UCX put", 1.0), ("UCX tag", 1.0), ("libfabric shm", 1.0))] +
        [goal for qps in (1, 8) for goal in goals("rate", "send", qps, ("UCX tag", 1.0))] +
        [Goal("memory-rate", "memory", "write", qps, limit=10) for qps in (1, 8)])


GOALS = (
    [Goal("bandwidth", w, v, MIB, "iperf3", 1.3) for w in VETH for v in ("write", "send", "read")] +
    [Goal("latency", w, v, 8, r, f) for w in VETH for v in ("write", "send")
     for r, f in (("UDP spinning", 1 / 1.2), ("TCP spinning", 1.0), ("TCP blocking", 1.0))] +
    [Goal("iwarp-bandwidth", "veth-1500", v + c, MIB, "iperf3", f) for v in ("write", "read") for c, f in (("", 1.0), (", CRC", 0.85))] +
    [Goal("iwarp-latency", "veth-1500", v, 8, "TCP spinning", 1 / 1.1) for v in ("write", "send")] +
    [Goal("connections", "loopback", "anyrdma", 1000, limit=64, field="qp_kib"),
     Goal("connections", "loopback", "anyrdma", 1000, "anyrdma", 0.9, field="message_us", rival_x=1)] +
    memory())


@dataclass
class Verdict:
    goal: Goal
    ours: float
    rival: Optional[float]
    unit: str
    higher_is_better: bool
    ratio: Optional[float]  # above 1: ours is better
    reached: bool


def judge(results, goal):
    """None when one of the two figures is not there."""
    f = results.field(goal.question, goal.field)
    ours = results.median(goal.question, goal.world, goal.line, goal.x, goal.field)
    if ours is None:
        return None
    if goal.limit is not None:
        ratio = ours / goal.limit if f.higher_is_better else goal.limit / ours
        return Verdict(goal, ours, goal.limit, f.unit, f.higher_is_better, ratio, ratio >= 1)
    rival = results.median(goal.question, goal.world, goal.rival, goal.rival_x or goal.x, goal.field)
    if rival is None:
        return None
    ratio = ours / rival if f.higher_is_better else rival / ours
    return Verdict(goal, ours, rival, f.unit, f.higher_is_better, ratio, ratio >= goal.factor)


def judge_all(results):
    return [v for v in (judge(results, g) for g in GOALS) if v]
