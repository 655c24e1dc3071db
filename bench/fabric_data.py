# SPDX-License-Identifier: MIT
"""What packets between two hosts of a fabric cost. On a clear path they go through shared memory, as over RoCE on one host; with
ANYRDMA_LOCAL=off through the process that is the fabric, hop by hop, beside RoCEv2 packets on the loopback."""
import os
import re
import subprocess

import pair
import worlds
from programs import gbps
from question import OURS, RIVAL, Field, Line, Question

NAME = f"bench-data-{os.getpid()}"
LIMIT = 60  # seconds for a fabric to come or go
LATENCY = ["-s", "8", "-n", "10000"]
STREAM = {None: 10000, "off": 3000}  # messages of 1 MiB: about a second
SMALL = {None: 1000000, "off": 200000}  # and of 8 bytes
SHAPES = {"one switch": ("star:2", "node2"), "three switches": ("tree:2,1,1", "node2"), "five switches": ("fat-tree:4", "node16")}


def ask(programs, world, *words):
    """What `anyrdma fabric` printed, in that world; None when it failed."""
    namespace = world.namespaces[0]
    prefix = ["ip", "netns", "exec", namespace] if namespace else []
    done = subprocess.run([*prefix, programs.tool, "fabric", words[0], "--name", NAME, *words[1:]], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, timeout=LIMIT, check=False)
    return None if done.returncode else done.stdout


def on(description, measure, *words):
    """The measurement while such a fabric is up."""
    def once(programs, world, _):
        if ask(programs, world, "up", "--quiet", *words, description) is None:
            return None
        try:
            return measure(programs, world)
        finally:
            ask(programs, world, "down")

    return once


def process_of(programs, world):
    """The fabric's, which works for both ends."""
    return re.search(r"process (\d+)", ask(programs, world, "status"))[1]


def under(programs, world, host):
    """The prefix of a program on that host."""
    return ["env", f"ANYRDMA_FABRIC={NAME}", *programs.under(world), "--host", host]


def row_of(o, size):
    rows = [line.split() for line in o.out.splitlines() if re.match(rf" {size}\s", line)]
    return [float(x) for x in rows[-1]] if o.ok and rows else None


def between_hosts(programs, world, program, args, far):
    port = world.next_port()
    ends = [[*under(programs, world, host), program, "-F", "-p", str(port), *args] for host in ("node1", far)]
    return pair.run(world, ends[0], ends[1] + ["localhost"], port, third=process_of(programs, world))


def figures(run, verb, local):
    """Half a round trip of 8 bytes, 1 MiB after the other, and 8 bytes after the other."""
    lat = run(f"ib_{verb}_lat", LATENCY)
    bw = run(f"ib_{verb}_bw", ["-s", str(1 << 20), "-n", str(STREAM[local])])
    rate = run(f"ib_{verb}_bw", ["-s", "8", "-n", str(SMALL[local])])
    short, long, many = row_of(lat, 8), row_of(bw, 1 << 20), row_of(rate, 8)
    return short and long and many and {"us": short[4], "gbps": gbps(long), "mps": many[4], "noise": max(lat.noise, bw.noise, rate.noise)}


def ours(verb, shape):
    description, far = SHAPES[shape]

    def measure(programs, world):
        return figures(lambda program, args: between_hosts(programs, world, program, args, far), verb, world.local)

    return Line(f"{verb}, {shape}", OURS, on(description, measure))


def roce(verb, name):
    def once(programs, world, _):
        def run(program, args):
            return programs.perftest(world, program, int(args[1]), args[2:])[1]

        return figures(run, verb, world.local)

    return Line(f"{verb}, {name}", RIVAL, once)


def question(key, title, note, rival, where):
    return Question(key, title, note,
                    [line for verb in ("write", "send") for line in (roce(verb, rival), *(ours(verb, shape) for shape in SHAPES))],
                    [Field("us", f"{title}: latency, 8 bytes", "µs", log=False, name="latency"),
                     Field("gbps", f"{title}: bandwidth, 1 MiB", "Gb/s", True, log=False, name="bandwidth"),
                     Field("mps", f"{title}: messages of 8 bytes", "M/s", True, log=False, name="rate")], worlds=(where,))


def questions():
    return [question("fabric-memory", "Two hosts of a fabric, clear path",
                     "perftest by LID between two hosts of a fabric, through shared memory while the switches between them would forward, "
                     "beside the same through RoCE's device on one host", "RoCE", worlds.MEMORY),
            question("fabric-hops", "Two hosts of a fabric, hop by hop",
                     "the same with ANYRDMA_LOCAL=off: each packet goes through the process that is the fabric; beside RoCEv2 packets on the "
                     "loopback. Three processes share the cores there are", "RoCEv2", worlds.LOOPBACK)]
