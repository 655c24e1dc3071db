# SPDX-License-Identifier: MIT
"""What programs on a fabric that connect by address notice of its management: how long a connect takes, which asks the subnet's
administration for a path, and how long a connection stands still when a cable on its path is cut."""
import json
import re
import time

import pair
import worlds
from fabric_data import SHAPES, ask, on, process_of, under
from question import OURS, RIVAL, Field, Line, Question

WATCHED = 3.0  # seconds that the connection is watched
APART = 0.6    # between a cut and its mending, and the next cut: longer than any of them may take


def address_of(programs, world, host):
    rows = [line.split() for line in (ask(programs, world, "hosts") or "").splitlines()]
    return next(re.match(r"[0-9.]+", word)[0] for row in rows if row and row[0] == host for word in row if re.match(r"10\.", word))


def connects(shape):
    description, far = SHAPES[shape]

    def measure(programs, world):
        port, address = world.next_port(), address_of(programs, world, far)
        ends = [[*under(programs, world, host), programs.connects_path, verb, "rdma", address, str(port)]
                for verb, host in (("serve", far), ("ask", "node1"))]
        o = pair.run(world, ends[0], ends[1] + ["1000"], port, endless=True, third=process_of(programs, world))
        return json.loads(o.out) | {"noise": o.noise} if o.ok else None

    return Line(shape, OURS, on(description, measure))


class Cuts:
    """Cuts and mends the first host's two uplinks in turn: one of them is on the path there, one on the path back."""

    def __init__(self, programs, world):
        self.programs, self.world = programs, world

    def make(self):
        for uplink in ("edge1[1]", "edge1[2]"):
            for word in ("cut", "mend"):
                time.sleep(APART)
                ask(self.programs, self.world, word, uplink)


def outage(name, *manager):
    def measure(programs, world):
        if manager and ask(programs, world, *manager) is None:
            return None
        port, address = world.next_port(), address_of(programs, world, "node16")
        ends = [[*under(programs, world, host), programs.outage_path, verb, address, str(port)]
                for verb, host in (("serve", "node16"), ("ask", "node1"))]
        o = pair.run(world, ends[0], ends[1] + [str(WATCHED)], port, endless=True, meanwhile=Cuts(programs, world).make,
                     third=process_of(programs, world))
        return json.loads(o.out) | {"noise": o.noise} if o.ok else None

    return Line(name, OURS, on("fat-tree:4", measure, *(["--sm=off"] if manager else [])))


def questions():
    return [Question("fabric-connect", "Connecting by address on a fabric",
                     "bench/connects.c, the median of 1,000 connects one after the other, between hosts of a fabric under the built-in "
                     "manager, beside the same over RoCE's device on one host",
                     [Line("RoCE", RIVAL, lambda p, w, x: p.connects(w, "rdma")), *(connects(shape) for shape in SHAPES)],
                     [Field("one_us", "Time of one connect on a fabric", "µs", log=False, name="one")],
                     rival="RoCE", worlds=(worlds.MEMORY,)),
            Question("fabric-cut", "A cut cable",
                     "the longest that a connection over five switches of fat-tree:4 stood still while each uplink of its host was cut "
                     "and mended (bench/outage.c), under each manager",
                     [outage("built-in manager"), outage("OpenSM", "sm", "opensm")],
                     [Field("longest_ms", "Time from a cut to the next completion", "ms", log=False, name="longest")],
                     worlds=(worlds.MEMORY, worlds.LOOPBACK))]
