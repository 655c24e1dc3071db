# SPDX-License-Identifier: MIT
"""What is asked on one host: both ends there, each on a core of its own.

A line of ours has its verb, and behind a comma how it goes, if not as by default with ordinary memory:
  file    the buffers are shareable: perftest --mmap, a file of a tmpfs for each end
  DM      the target is device memory (dm.c)
  map     ANYRDMA_LOCAL=map, where registered pages are moved to where peers map them
  ring    ANYRDMA_LOCAL=ring, as where the kernel lets nobody look into other processes: Yama, seccomp, PID namespaces
  before  as another build does by default (run --before)
"""
import worlds
from programs import BEFORE, FILE, UCX_CMA
from question import FLOOR, OURS, RIVAL, Field, Line, Question

HERE = (worlds.MEMORY,)
SMALL, LARGE = [8], [65536, 1 << 20]
MESSAGES = 2000000  # of a rate
SLOW_MESSAGES = 500000  # where each is a system call
STREAM = 4.0        # seconds by bandwidth()'s guess of 3 GB/s, a fraction of that in truth: about as much as UCX is given
FLOOR_KEY = {65536: "64k", 1 << 20: "1m"}  # of what memory.c prints
SHARED, BEST = "posix", "posix,cma"        # what UCX may use
WAYS = {"": None, ", file": FILE, ", map": "map", ", ring": "ring"}


def ours(measure, verbs, xs, ways, without=()):
    """The lines of all verbs, one way after the other; measure(programs, world, verb, x, way)."""
    def line(verb, suffix, way):
        return Line(verb + suffix, OURS, lambda p, w, x: measure(p, w, verb, x, way), xs)

    return [line(verb, suffix, way) for suffix, way in ways.items() for verb in verbs if verb + suffix not in without]


def latency(ways):
    def ucx(name, test, transports):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_latency(w, test, x, transports), SMALL)

    def floor(name, key, scale=1.0):
        return Line(name, FLOOR, lambda p, w, x: p.memory_floor(key, scale), SMALL)

    return Question(
        "memory-latency", "Latency on one host",
        "median, as perftest gives it: half a round trip, of READs and atomics the whole one, of DM from posting to completion; "
        "beside UCX over shared memory and over cma, sockperf's blocking TCP ping-pong, and the floors: a cache line that two cores "
        "write in turn, a bare process_vm_writev and process_vm_readv, and a word that two processes write into each other's memory "
        "in turn by process_vm_writev",
        [ucx("UCX put", "ucp_put_lat", SHARED), ucx("UCX put, cma", "put_lat", UCX_CMA), ucx("UCX tag", "tag_lat", BEST),
         Line("TCP", RIVAL, lambda p, w, x: p.sockperf_latency(w, x, ["--tcp"]), SMALL)] +
        ours(lambda p, w, verb, x, way: p.latency(w, verb, x, way=way), ("write", "send", "read", "atomic"), SMALL, ways) +
        [Line("write, DM", OURS, lambda p, w, x: p.dm_latency(w, "write", x), SMALL),
         Line("read, DM", OURS, lambda p, w, x: p.dm_latency(w, "read", x), SMALL),
         floor("cache line", "line_ns", 1e-3), floor("process_vm_writev", "writev_us"), floor("process_vm_readv", "readv_us"),
         floor("process_vm_writev in turn", "turn_us")],
        [Field("value", "Latency on one host", "µs")], "message size", True, "UCX tag", HERE)


def bandwidth(ways):
    def ucx(name, test, transports=BEST):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_bandwidth(w, test, x, transports), LARGE)

    def dm(verb):
        return Line(f"{verb}, DM", OURS, lambda p, w, x: p.dm_bandwidth(w, verb, x, STREAM), LARGE)

    def floor(name, key):
        return Line(name, FLOOR, lambda p, w, x: p.memory_floor(f"{key}_{FLOOR_KEY[x]}", 8), LARGE)

    def loop(call):
        return Line(f"{call} loop", RIVAL, lambda p, w, x: p.memory_floor(f"loop_{call[11:]}_{FLOOR_KEY[x]}", 8), LARGE)

    return Question(
        "memory-bandwidth", "Bandwidth on one host",
        "perftest ib_*_bw beside UCX, libfabric's shm provider (fi_pingpong: one message at a time) and the floors: memcpy "
        "from private into shared memory, process_vm_writev and process_vm_readv: the best of many short rounds; the loops are their "
        "mean, as a program has it that does nothing else. UCX put and UCX tag use memory that UCX allocated "
        "as shared, by cma nevertheless for tags; with cma it is from malloc() and only the kernel reaches it, as ours is by default",
        [ucx("UCX put", "ucp_put_bw"), ucx("UCX put, cma", "put_bw", UCX_CMA), ucx("UCX get, cma", "get", UCX_CMA),
         ucx("UCX tag", "tag_bw"),
         loop("process_vm_writev"), loop("process_vm_readv"),
         Line("libfabric shm", RIVAL, lambda p, w, x: p.libfabric_bandwidth(w, x), LARGE)] +
        ours(lambda p, w, verb, x, way: p.bandwidth(w, verb, x, STREAM, way=way), ("write", "read", "send"), LARGE, ways) +
        [dm("write"), dm("read"), floor("memcpy", "memcpy"), floor("process_vm_writev", "writev"),
         floor("process_vm_readv", "readv")],
        [Field("value", "Bandwidth on one host", "Gb/s", True)], "message size", True, "UCX tag", HERE)


def rate(ways):
    def ucx(name, test, transports):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_rate(w, test, transports))

    def count(verb, way):
        return SLOW_MESSAGES if verb == "write" and way is None else MESSAGES

    return Question(
        "memory-rate", "Message rate on one host",
        "8-byte messages; perftest ib_*_bw -q beside UCX, and the floor of WRITE by default: bare process_vm_writevs in a row",
        [ucx("UCX tag", "tag_bw", BEST), ucx("UCX put", "ucp_put_bw", SHARED)] +
        ours(lambda p, w, verb, x, way: p.rate(w, verb, x, count(verb, way), way), ("send", "write"), [1, 8], ways,
             ("send, file",)) +
        [Line("process_vm_writev loop", RIVAL, lambda p, w, x: p.memory_floor("loop_writev_us", inverse=True)),
         Line("process_vm_writev", FLOOR, lambda p, w, x: p.memory_floor("writev_us", inverse=True))],
        [Field("value", "Message rate on one host", "M/s", True)], "queue pairs", rival="UCX tag", worlds=HERE)


def cpu():
    def line(name, verb, *extra, way=None):
        return Line(name, OURS, lambda p, w, x: p.cpu(w, verb, extra, way))

    return Question(
        "memory-cpu", "CPU time per GB on one host", "as over the links; 1 MiB messages",
        [Line("iperf3", RIVAL, lambda p, w, x: p.tcp_cpu(w)), line("write, polling", "write"), line("send, sleeping", "send", "-e"),
         line("write, polling, file", "write", way=FILE), line("send, sleeping, ring", "send", "-e", way="ring")],
        [Field("value", "CPU time per GB on one host", "s/GB", log=False)], rival="iperf3", worlds=HERE)


def questions(before):
    ways = WAYS | ({", before": BEFORE} if before else {})
    return [latency(ways), bandwidth(ways), rate(ways), cpu()]
