# SPDX-License-Identifier: MIT
"""The figures we want, and whether they were reached."""
from dataclasses import dataclass
from typing import Optional

MIB = 1 << 20
VETH = ("veth-9000", "veth-1500")


@dataclass
class Goal:
    """Ours over the rival (times better) is at least `factor`; or, without a rival, the figure is no worse than `limit`; or it is at most
    `more` above the rival's."""
    question: str
    world: str
    line: str
    x: Optional[int]
    rival: Optional[str] = None
    factor: float = 1.0
    limit: Optional[float] = None
    field: str = "value"
    rival_x: Optional[int] = None  # a line may be its own rival, elsewhere
    more: float = 0.0

    def text(self):
        verb, _, how = self.line.partition(",")
        size = "1 MiB" if self.x == MIB else f"{(self.x or 0) >> 10} KiB"
        what = {"bandwidth": f"ib_{verb}_bw, {size}{how}", "latency": f"ib_{verb}_lat, 8 B{how}", "rate": f"ib_{verb}_bw, 8 B, -q {self.x}{how}",
                "opensm_s": f"opensm -o, fat-tree:{self.x}", "discover_s": f"ibnetdiscover, fat-tree:{self.x}", "mib": f"memory of fat-tree:{self.x}",
                "us": f"ib_{verb}_lat, 8 B{how}", "gbps": f"ib_{verb}_bw, 1 MiB{how}", "mps": f"ib_{verb}_bw, 8 B{how}", "one_us": f"connect on a fabric, {self.line}", "longest_ms": f"a cut cable, {self.line}",
                "message_us": f"cost of a message, {self.x} queue pairs", "qp_kib": "memory of an idle queue pair"}
        kind, _, asked = self.question.rpartition("-")
        return "iWARP " * (kind == "iwarp") + (what.get(asked) or what[self.field])

    def against(self):
        return f"{self.rival_x} queue pair" if self.rival_x else self.rival


def memory():
    """On one host (memory.py says what stands behind the commas). A factor below 1 is how much worse than a floor it may be.

    Ordinary memory is compared with what the kernel alone can do, and with UCX where only the kernel reaches its memory; shareable
    memory with UCX where its memory is shared, and with `map`. Those against `before` are judged when another build was
    measured beside (run --before).
    """
    def goals(question, line, x, *rivals):
        return [Goal(f"memory-{question}", "memory", line, x, rival, factor) for rival, factor in rivals]

    def shareable(suffix, verbs, ucx):
        """As fast as registered memory that was moved: the rest is noise."""
        return [goal for size in (65536, MIB) for verb in verbs for goal in
                goals("bandwidth", verb + suffix, size, (f"{verb}, map", 0.95), (f"{verb}, before", 0.95), (ucx, 1.0))]

    by_kernel = {"write": ("UCX put, cma", "UCX tag"), "read": ("UCX get, cma", "UCX tag"), "send": ("UCX tag",)}
    return (
        goals("latency", "write", 8, ("process_vm_writev in turn", 1 / 1.3), ("process_vm_writev", 1 / 1.3), ("UCX put, cma", 1.0)) +
        goals("rate", "write", 1, ("process_vm_writev loop", 1 / 1.3)) +
        goals("latency", "send", 8, ("send, map", 0.95), ("send, before", 0.95), ("UCX tag", 1.0), ("TCP", 50.0)) +
        [goal for size in (65536, MIB) for verb, rivals in by_kernel.items() for goal in
         goals("bandwidth", verb, size, ("process_vm_writev loop", 0.9), *((ucx, 1.0) for ucx in rivals))] +
        [goal for verb in ("write", "read", "atomic") for goal in
         goals("latency", f"{verb}, file", 8, (f"{verb}, map", 0.95), (f"{verb}, before", 0.95))] +
        goals("latency", "write, file", 8, ("cache line", 1 / 2), ("UCX put", 1.0)) +
        shareable(", file", ("write", "read"), "UCX put") + shareable(", file", ("send",), "UCX tag") +
        shareable(", DM", ("write", "read"), "UCX put") +
        [goal for qps in (1, 8) for goal in goals("rate", "send", qps, ("UCX tag", 1.0), ("send, before", 0.95))] +
        [Goal("memory-rate", "memory", "write, file", qps, limit=10) for qps in (1, 8)])


GOALS = (
    [Goal("bandwidth", w, v, MIB, "iperf3", 1.3) for w in VETH for v in ("write", "send", "read")] +
    [Goal("latency", w, v, 8, r, f) for w in VETH for v in ("write", "send")
     for r, f in (("UDP spinning", 1 / 1.2), ("TCP spinning", 1.0), ("TCP blocking", 1.0))] +
    [Goal("iwarp-bandwidth", "veth-1500", v + c, MIB, "iperf3", f) for v in ("write", "read") for c, f in (("", 1.0), (", CRC", 0.85))] +
    [Goal("iwarp-latency", "veth-1500", v, 8, "TCP spinning", 1 / 1.1) for v in ("write", "send")] +
    [Goal("connections", "loopback", "anyrdma", 1000, limit=64, field="qp_kib"),
     Goal("connections", "loopback", "anyrdma", 1000, "anyrdma", 0.9, field="message_us", rival_x=1)] +
    [Goal("fabric", "loopback", "anyrdma", k, "ibsim", 1 / 1.3, field=f) for f, k in (("opensm_s", 16), ("opensm_s", 24), ("discover_s", 16))] +
    [Goal("fabric", "loopback", "anyrdma", 16, limit=64, field="mib")] +
    [Goal("fabric-memory", "memory", f"{v}, {shape}", None, f"{v}, RoCE", 0.95, field=f)
     for v in ("write", "send") for shape in ("one switch", "five switches") for f in ("us", "gbps", "mps")] +
    [Goal("fabric-hops", "loopback", f"{v}, one switch", None, f"{v}, RoCEv2", 0.5, field="gbps") for v in ("write", "send")] +
    [Goal("fabric-hops", "loopback", f"{v}, three switches", None, f"{v}, one switch", 0.97 ** 2, field="gbps") for v in ("write", "send")] +
    [Goal("fabric-hops", "loopback", f"{v}, three switches", None, f"{v}, one switch", more=2 * 0.3, field="us") for v in ("write", "send")] +
    [Goal("fabric-connect", "memory", shape, None, "RoCE", 0.5, field="one_us") for shape in ("one switch", "five switches")] +
    [Goal("fabric-cut", w, f"{m}", None, limit=ms, field="longest_ms")
     for w in ("memory", "loopback") for m, ms in (("built-in manager", 20), ("OpenSM", 500))] +
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
    ratio = ours / rival if f.higher_is_better else (rival + goal.more) / ours
    return Verdict(goal, ours, rival, f.unit, f.higher_is_better, ratio, ratio >= goal.factor)


def judge_all(results):
    return [v for v in (judge(results, g) for g in GOALS) if v]
