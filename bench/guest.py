# SPDX-License-Identifier: MIT
"""The worlds "guest" and "guest-siw": machines with Linux's own RoCE (rdma_rxe) and iWARP (siw), made and started by
tests/interop. Both ends run in it, on the same interface: Linux's to Linux's, or anyrdma to anyrdma, on a port of its own as the
kernel has 4791."""
import math
import os
import re
import subprocess

import worlds

CONSOLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "interop", "console.sh")
RXE, OURS = "rxe", "anyrdma"
DEVICES = {RXE: "rxe0", OURS: "roce_eth0"}
PREFIX = {RXE: "", OURS: "env ANYRDMA_PORT=4792 anyrdma run "}
SIW = "siw"
MEMORY = "shared memory"
IWARP_PREFIX = {SIW: ""} | {who: f"env ANYRDMA_PORT=4792 ANYRDMA_LOCAL={way} ANYRDMA_DEVICES=iwarp anyrdma run "
                            for who, way in ((OURS, "off"), (MEMORY, "map"))}
ADDRESS = "10.77.0.2"
PAIR = ("{end} >/tmp/server 2>&1 & "
        "until grep -qi ':{port:04x} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 || ! kill -0 $!; do sleep 0.05; done; "
        "timeout 60 {end} {address}; status=$?; kill $! 2>/dev/null; wait; exit $status")


class Guest:
    """A guest to talk to; `world` and `kind` are those of tests/interop."""

    def __init__(self, name, build, world, kind):
        self.name, self.port = name, 21000
        self.console = subprocess.Popen([CONSOLE, world], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | {"ANYRDMA_BUILD": os.path.abspath(build), "GUEST_KIND": kind})
        status, out = self.answer()
        if status != 0:
            self.close()
            raise worlds.Missing(out.removeprefix("SKIP").strip() or "no guest")

    def close(self):
        self.console.stdin.close()
        self.console.wait()

    def answer(self):
        """The exit status and the output of the command; no status when the guest is gone."""
        out = ""
        for line in self.console.stdout:
            m = re.fullmatch(r"(.*)status (\d+)\n", line)
            if m:
                return int(m[2]), out + m[1]
            out += line
        return None, out

    def run(self, command):
        self.console.stdin.write(command + "\n")
        self.console.stdin.flush()
        return self.answer()

    def perftest(self, command, size, n):
        """The numbers of the result's line; None when it failed."""
        self.port += 1
        end = f"{command} -F -s {size} -n {n} -p {self.port}"
        status, out = self.run(PAIR.format(end=end, port=self.port, address=ADDRESS))
        rows = [line.split() for line in out.splitlines() if re.match(rf" {size}\s", line)]
        return [float(x) for x in rows[-1]] if status == 0 and rows else None


class Rxe(Guest):
    def __init__(self, build):
        super().__init__(worlds.GUEST, build, "rxe-calls-9000", "qemu")
        self.gids = {}

    def gid_index(self, who):
        if who not in self.gids:
            out = self.run(f"{PREFIX[who]}ibv_devinfo -v -d {DEVICES[who]}")[1]
            self.gids[who] = re.search(rf"GID\[ *(\d+)\]:\s*::ffff:{ADDRESS}", out)[1]
        return self.gids[who]

    def command(self, who, program):
        return f"{PREFIX[who]}{program} -d {DEVICES[who]} -x {self.gid_index(who)}"

    def measure(self, who, size):
        """MB/s and microseconds of each operation."""
        figures = {}
        for verb in ("write", "send", "read"):
            bw = self.perftest(self.command(who, f"ib_{verb}_bw"), size, 200 if size <= 4096 else 100)
            lat = self.perftest(self.command(who, f"ib_{verb}_lat"), size, 1000 if size <= 4096 else 50)
            if not bw or not lat:
                return None
            figures |= {f"{verb}_mbps": bw[3], f"{verb}_us": lat[4] / (2 if verb == "read" else 1)}
        return figures


class Siw(Guest):
    """User Mode Linux, for Linux's iWARP: one processor, so both ends sleep (-e). perftest does not always understand its clock,
    and with -e now and then misses the last event: then it is asked again."""
    TRIES = 8

    def __init__(self, build):
        super().__init__(worlds.SIW, build, "siw-calls-1500", "uml")

    def figure(self, who, program, size, n, column):
        for _ in range(self.TRIES):
            row = self.perftest(f"{IWARP_PREFIX[who]}{program} -R -e", size, n)
            if row and math.isfinite(row[column]) and row[column] > 0:
                return row[column]
        return None

    def measure(self, who):
        figures = {"send_mbps": self.figure(who, "ib_send_bw", 65536, 2000, 3),
                   "read_mbps": self.figure(who, "ib_read_bw", 65536, 2000, 3),
                   "send_us": self.figure(who, "ib_send_lat", 8, 1000, 4)}
        return figures if all(figures.values()) else None
