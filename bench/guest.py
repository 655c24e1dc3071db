# SPDX-License-Identifier: MIT
"""The world "guest": a machine with Debian's kernel and its own RoCE (rdma_rxe), made and started by tests/interop. Both ends
run in it, on the same interface: rxe to rxe, or anyrdma to anyrdma, on a port of its own as the kernel has 4791."""
import os
import re
import subprocess

import worlds

CONSOLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "interop", "console.sh")
RXE, OURS = "rxe", "anyrdma"
DEVICES = {RXE: "rxe0", OURS: "roce_eth0"}
PREFIX = {RXE: "", OURS: "env ANYRDMA_PORT=4792 anyrdma run "}
ADDRESS = "10.77.0.2"
PAIR = ("{end} >/tmp/server 2>&1 & "
        "until grep -qi ':{port:04x} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 || ! kill -0 $!; do sleep 0.05; done; "
        "timeout 60 {end} {address}; status=$?; kill $! 2>/dev/null; wait; exit $status")


class Guest:
    def __init__(self, build):
        self.name, self.port, self.gids = worlds.GUEST, 21000, {}
        self.console = subprocess.Popen([CONSOLE, "rxe-calls-9000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | {"ANYRDMA_BUILD": os.path.abspath(build), "GUEST_KIND": "qemu"})
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

    def gid_index(self, who):
        if who not in self.gids:
            out = self.run(f"{PREFIX[who]}ibv_devinfo -v -d {DEVICES[who]}")[1]
            self.gids[who] = re.search(rf"GID\[ *(\d+)\]:\s*::ffff:{ADDRESS}", out)[1]
        return self.gids[who]

    def perftest(self, who, program, size, n):
        """The numbers of the result's line."""
        self.port += 1
        end = f"{PREFIX[who]}{program} -F -s {size} -n {n} -p {self.port} -d {DEVICES[who]} -x {self.gid_index(who)}"
        status, out = self.run(PAIR.format(end=end, port=self.port, address=ADDRESS))
        rows = [line.split() for line in out.splitlines() if re.match(rf" {size}\s", line)]
        return [float(x) for x in rows[-1]] if status == 0 and rows else None

    def measure(self, who, size):
        """MB/s and microseconds of each operation."""
        figures = {}
        for verb in ("write", "send", "read"):
            bw = self.perftest(who, f"ib_{verb}_bw", size, 200 if size <= 4096 else 100)
            lat = self.perftest(who, f"ib_{verb}_lat", size, 1000 if size <= 4096 else 50)
            if not bw or not lat:
                return None
            figures |= {f"{verb}_mbps": bw[3], f"{verb}_us": lat[4] / (2 if verb == "read" else 1)}
        return figures
