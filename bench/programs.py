# SPDX-License-Identifier: MIT
"""The programs that are measured. Each function runs one of them once and returns what it measured as a dictionary,
"value" being the figure of the question that asks; None when it failed. Latencies are half round trips in
microseconds, bandwidths Gb/s (10^9 bits of payload)."""
import functools
import json
import os
import re
import tempfile

import pair

# How two ends of one host go, beside the default: what ANYRDMA_LOCAL says; or by default, but
FILE = "file"      # with buffers that are shareable, in files of a tmpfs
BEFORE = "before"  # as another build of anyrdma does
UCX_CMA = "cma"  # what UCX may use: cma alone, for memory from malloc()
FILE_BYTES = 64 << 20  # more than perftest's buffers for 1 MiB


class Programs:
    def __init__(self, build, before=None):
        self.tool, self.before = (os.path.abspath(os.path.join(b, "bin", "anyrdma")) if b else None for b in (build, before))
        self.floor_path, self.qps_path, self.cores_path, self.connects_path, self.outage_path, self.memory_path, self.dm_path = (
            os.path.abspath(os.path.join(build, "bench", name))
            for name in ("floor", "qps", "cores", "connects", "outage", "memory", "dm"))

    def paths(self):
        return [path for path in (self.tool, self.before, self.floor_path, self.qps_path, self.cores_path, self.connects_path,
                                  self.outage_path, self.memory_path, self.dm_path) if path]

    def under(self, world, way=None):
        """The prefix of a program that uses our libraries."""
        local = way if way not in (None, FILE, BEFORE) else world.local
        env = ["env", f"ANYRDMA_LOCAL={local}"] if local else ["env", "-u", "ANYRDMA_LOCAL"]
        return env + [self.before if way == BEFORE else self.tool, "run"]

    @functools.cached_property
    def files(self):
        """Where a tmpfs is, a file for each end: shareable memory. They go with us."""
        self.directory = tempfile.TemporaryDirectory(prefix="anyrdma-bench-", dir="/dev/shm")
        paths = [os.path.join(self.directory.name, end) for end in ("server", "client")]
        for path in paths:
            with open(path, "wb") as f:
                f.truncate(FILE_BYTES)
        return paths

    @functools.lru_cache(maxsize=None)
    def gid_index(self, world, end):
        """The index of the device's IPv4 GID."""
        out = pair.run_alone(world, [self.tool, "devices", "--json"], end)
        for dev in json.loads(out or "[]"):
            for gid in dev["gids"]:
                if dev["name"] == world.devices[end] and "." in gid["address"]:
                    return str(gid["index"])
        return "0"

    # ---- ours ----

    def perftest(self, world, program, size, extra, way=None):
        """The numbers of the result's line, and the outcome."""
        port = world.next_port()
        args = [program, "-F", "-s", str(size), "-p", str(port)] + extra
        ends = [self.under(world, way) + args + ["-d", world.devices[i], "-x", self.gid_index(world, i)] +
                ([f"--mmap={self.files[i]}"] if way == FILE else []) for i in (0, 1)]
        o = pair.run(world, ends[0], ends[1] + [world.address], port)
        rows = [line.split() for line in o.out.splitlines() if re.match(rf" {size}\s", line)]
        return ([float(x) for x in rows[-1]] if o.ok and rows else None), o

    def iwarp(self, world, program, size, n, crc):
        """The same over iWARP, connected by address."""
        port = world.next_port()
        command = ["env", "ANYRDMA_DEVICES=iwarp", f"ANYRDMA_IWARP={'crc' if crc else ''}", self.tool, "run", program, "-R", "-F",
                   "-s", str(size), "-n", str(n), "-p", str(port)]
        o = pair.run(world, command, command + [world.address], port, "rdma")
        rows = [line.split() for line in o.out.splitlines() if re.match(rf" {size}\s", line)]
        return ([float(x) for x in rows[-1]] if o.ok and rows else None), o

    def iwarp_bandwidth(self, world, verb, size, crc):
        row, o = self.iwarp(world, f"ib_{verb}_bw", size, max(int(1.5e9 / size), 20), crc)
        return row and {"value": gbps(row), "noise": o.noise}

    def iwarp_latency(self, world, verb, size):
        row, o = self.iwarp(world, f"ib_{verb}_lat", size, 10000, False)
        half = 2 if verb == "read" else 1
        return row and {"value": row[4] / half, "avg": row[5] / half, "p99": row[7] / half, "noise": o.noise}

    def bandwidth(self, world, verb, size, seconds=0.4, extra=(), way=None):
        """Bytes in about that many seconds, guessing at 3 GB/s and three microseconds per message."""
        n = max(int(seconds / (size / 3e9 + 3e-6)), 20)
        row, o = self.perftest(world, f"ib_{verb}_bw", size, ["-n", str(n), *extra], way)
        return row and {"value": gbps(row), "mpps": row[4], "noise": o.noise}

    def rate(self, world, verb, qps, count=100000, way=None):
        """With several queue pairs perftest may hang when -n is not a multiple of its 100 messages per completion."""
        n = max(count // qps // 100, 1) * 100
        row, o = self.perftest(world, f"ib_{verb}_bw", 8, ["-n", str(n), "-q", str(qps)], way)
        return row and {"value": row[4], "noise": o.noise}

    def latency(self, world, verb, size, extra=(), way=None):
        """As perftest gives it: half a round trip, but of READs and atomics the whole one."""
        n = min(max(int(0.2 / (size / 1e9 + 1e-5)), 100), 10000)
        row, o = self.perftest(world, f"ib_{verb}_lat", size, ["-n", str(n), *extra], way)
        return row and {"value": row[4], "avg": row[5], "p99": row[7], "noise": o.noise}

    def half_latency(self, world, verb, size, extra=(), way=None):
        """Half a round trip, of whatever verb."""
        got, whole = self.latency(world, verb, size, extra, way), verb == "read"
        return got and {key: value / 2 if whole and key != "noise" else value for key, value in got.items()}

    def cpu(self, world, verb, extra=(), way=None):
        """CPU seconds per GB: a long run minus one that only starts, as perftest starts with a third of a second."""
        few, many, size = 5, 4000, 1 << 20
        outcomes = []
        for n in (few, many):
            row, o = self.perftest(world, f"ib_{verb}_bw", size, ["-n", str(n), *extra], way)
            if not row:
                return None
            outcomes.append(o)
        start, whole = outcomes
        return cpu_per_gb(whole.cpu - start.cpu, whole.softirq - start.softirq, (many - few) * size, gbps(row), whole.noise)

    def qps(self, world, n):
        """Our own program, see qps.c; its figures as they are."""
        command = self.under(world) + [self.qps_path, world.devices[0], self.gid_index(world, 0), str(n)]
        out = pair.run_alone(world, command)
        return out and json.loads(out)

    def dm(self, world, verb, size, count):
        """Our own program, see dm.c: it makes both ends, so it gets both cores."""
        out = pair.run_alone(world.alone(), self.under(world) + [self.dm_path, world.devices[0], self.gid_index(world, 0), verb,
                                                                str(size), str(count)])
        return json.loads(out) if out else None

    def dm_latency(self, world, verb, size):
        got = self.dm(world, verb, size, 1)
        return got and {"value": got["us"]}

    def dm_bandwidth(self, world, verb, size, seconds):
        got = self.dm(world, verb, size, int(seconds * 3e9 / size))
        return got and {"value": got["gbps"]}

    def connects(self, world, kind, n=1000):
        """Our own program, see connects.c: its figures as they are."""
        port, run = world.next_port(), self.under(world) if kind == "rdma" else []
        ends = [run + [self.connects_path, verb, kind, world.address, str(port)] for verb in ("serve", "ask")]
        o = pair.run(world, ends[0], ends[1] + [str(n)], port, endless=True)
        return json.loads(o.out) | {"noise": o.noise} if o.ok else None

    def rdma_connects(self, world, n=1000):
        """One by one as above; all at once by cmtime, which gives the microseconds of each step per connection."""
        one, port = self.connects(world, "rdma"), world.next_port()
        cmtime = [*self.under(world), "cmtime", "-p", str(port)]
        o = pair.run(world, [*cmtime, "-b", world.address], [*cmtime, "-s", world.address, "-c", str(n)], port, "rdma",
                     endless=True)
        steps = {m[1]: float(m[2]) for m in re.finditer(r"^([a-z ]+?) *:.* ([0-9.]+)$", o.out, re.M)}
        us = sum(steps.get(s, 0) for s in ("create id", "resolve addr", "resolve route", "create qp", "connect"))
        return one | {"per_second": 1e6 / us, "noise": max(o.noise, one["noise"])} if one and o.ok and us else None

    # ---- the floor ----

    def floor(self, world, server, client, options, seconds=1.0):
        port = world.next_port()
        args = ["-p", str(port)] + options
        o = pair.run(world, [self.floor_path, server, *args],
                     [self.floor_path, client, world.address, *args, "-t", str(seconds)], port, "udp")
        return (json.loads(o.out), json.loads(o.server_out), o) if o.ok and o.server_out else None

    def floor_bandwidth(self, world, into, seconds=1.0):
        got = self.floor(world, "sink", "stream", ["-s", str(world.payload), "-i", into, "-z"], seconds)
        return got and {"value": got[0]["gbps"], "lost": got[1]["lost"], "bad": got[1]["bad"], "noise": got[2].noise}

    def floor_cpu(self, world, into):
        got = self.floor(world, "sink", "stream", ["-s", str(world.payload), "-i", into])
        return got and cpu_per_gb(got[2].cpu, got[2].softirq, got[1]["bytes"], got[0]["gbps"], got[2].noise)

    def floor_latency(self, world, size, spin):
        got = self.floor(world, "echo", "ping", ["-s", str(size)] + ["-z"] * spin, 0.5)
        return got and {"value": got[0]["median"], "avg": got[0]["avg"], "p99": got[0]["p99"], "noise": got[2].noise}

    def memory_floor(self, key, scale=1.0, inverse=False):
        """One figure of memory.c, which needs both cores and no network; or how often per unit."""
        out = pair.run_alone(None, [self.memory_path])
        figure = out and json.loads(out)[key] * scale
        return figure and {"value": 1 / figure if inverse else figure}

    # ---- rivals ----

    def iperf3(self, world, extra):
        port = world.next_port()
        o = pair.run(world, ["iperf3", "-s", "-1", "-p", str(port)],
                     ["iperf3", "-J", "-c", world.address, "-p", str(port), *extra], port)
        return (json.loads(o.out)["end"]["sum_received"], o) if o.ok else None

    def tcp_bandwidth(self, world, seconds=2):
        got = self.iperf3(world, ["-t", str(seconds)])
        return got and {"value": got[0]["bits_per_second"] / 1e9, "noise": got[1].noise}

    def tcp_cpu(self, world):
        got = self.iperf3(world, ["-n", "4G"])
        return got and cpu_per_gb(got[1].cpu, got[1].softirq, got[0]["bytes"], got[0]["bits_per_second"] / 1e9,
                                  got[1].noise)

    def sockperf(self, world, mode, size, options):
        port = world.next_port()
        both = ["-i", world.address, "-p", str(port), *options]
        return pair.run(world, ["sockperf", "sr", *both],
                        ["sockperf", mode, *both, "-t", "1", "-m", str(min(max(size, 14), 65000))], port,
                        "tcp" if "--tcp" in options else "udp", endless=True)

    def sockperf_latency(self, world, size, options):
        o = self.sockperf(world, "pp", size, options)
        number = {key: re.search(pattern + r"\s*=\s*([0-9.]+)", o.out) for key, pattern in
                  (("value", "percentile 50.000"), ("avg", "avg-latency"), ("p99", "percentile 99.000"))}
        found = o.ok and all(number.values())
        return {k: float(m[1]) for k, m in number.items()} | {"noise": o.noise} if found else None

    def ucx(self, world, test, size, n, transports):
        """A row of ucx_perftest: latencies in microseconds, bandwidths in MiB/s, messages per second.

        Its memory comes from malloc() (UCX_ALLOC_PRIO=heap) where arbitrary memory is meant; put and get over cma are asked of
        UCT, since UCP's own put into such memory does not use cma but has the target's program copy.
        """
        port, cma = world.next_port(), ["-x", "cma", "-d", "memory", "-D", "zcopy"] if transports == UCX_CMA else []
        env = ["UCX_TLS=posix,cma", "UCX_ALLOC_PRIO=heap"] if transports == UCX_CMA else [f"UCX_TLS={transports}"]
        command = ["env", *env, "UCX_LOG_LEVEL=error", "ucx_perftest", "-p", str(port)]
        o = pair.run(world, command, [*command, world.address, "-t", test, "-s", str(size), "-n", str(n), "-f", "-v", *cma], port)
        rows = [line.split(",") for line in o.out.splitlines() if re.match(r"\d+,", line)]
        return ([float(x) for x in rows[-1]] if o.ok and rows else None), o

    def ucx_latency(self, world, test, size, transports):
        row, o = self.ucx(world, test, size, 100000, transports)
        return row and {"value": row[1], "avg": row[3], "noise": o.noise}

    def ucx_bandwidth(self, world, test, size, transports):
        row, o = self.ucx(world, test, size, (4 << 30) // size, transports)
        return row and {"value": row[5] * 8 * 1.048576 / 1000, "noise": o.noise}

    def ucx_rate(self, world, test, transports):
        row, o = self.ucx(world, test, 8, 5000000, transports)
        return row and {"value": row[7] / 1e6, "noise": o.noise}

    def libfabric_bandwidth(self, world, size):
        """fi_pingpong over shared memory, the only measuring program Debian has for it: one message at a time."""
        port = world.next_port()
        command = ["fi_pingpong", "-p", "shm", "-e", "rdm", "-S", str(size), "-I", str((1 << 30) // size)]
        o = pair.run(world, [*command, "-B", str(port)], [*command, "-P", str(port), world.address], port)
        rows = [line.split() for line in o.out.splitlines()[1:] if line]
        return {"value": float(rows[-1][5]) * 8 / 1000, "noise": o.noise} if o.ok and rows else None

    def sockperf_rate(self, world):
        o = self.sockperf(world, "tp", 14, ["--tcp"])
        m = re.search(r"Message Rate is ([0-9.]+)", o.out)
        return {"value": float(m[1]) / 1e6, "noise": o.noise} if o.ok and m else None


def gbps(row):
    """Of perftest's MiB/s."""
    return row[3] * 8 * 1.048576 / 1000


def cpu_per_gb(cpu, softirq, count, speed, noise):
    gb = count / 1e9
    return {"value": (cpu + softirq) / gb, "processes": cpu / gb, "softirq": softirq / gb, "gbps": speed, "noise": noise}
