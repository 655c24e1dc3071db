# SPDX-License-Identifier: MIT
"""What is asked of the ways by memory: both ends on one host, each on a core of its own."""
import worlds
from question import FLOOR, OURS, RIVAL, Field, Line, Question

HERE = (worlds.MEMORY,)
SMALL, LARGE = [8], [65536, 1 << 20]
MESSAGES = 2000000  # of a rate
STREAM = 8.0        # seconds by bandwidth()'s guess of 3 GB/s, half a second in truth: so much as UCX is given
FLOOR_KEY = {65536: "64k", 1 << 20: "1m"}  # of what memory.c prints
SHARED, BEST = "posix", "posix,cma"        # what UCX may use


def latency():
    def ours(name, verb, local=None):
        return Line(name, OURS, lambda p, w, x: p.latency(w, verb, x, local=local), SMALL)

    def ucx(name, test, transports):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_latency(w, test, x, transports), SMALL)

    return Question(
        "memory-latency", "Latency on one host",
        "median, as perftest gives it: half a round trip, of READs and atomics the whole one; beside UCX over shared memory, "
        "sockperf's blocking TCP ping-pong, and the floors: a cache line that two cores write in turn, a bare "
        "process_vm_writev",
        [ucx("UCX put", "ucp_put_lat", SHARED), ucx("UCX tag", "tag_lat", BEST),
         Line("TCP", RIVAL, lambda p, w, x: p.sockperf_latency(w, x, ["--tcp"]), SMALL)] +
        [ours(verb, verb) for verb in ("write", "send", "read")] + [ours("atomic", "atomic")] +
        [ours("write, by copy", "write", "copy"),
         Line("cache line", FLOOR, lambda p, w, x: p.memory_floor("line_ns", 1e-3), SMALL),
         Line("process_vm_writev", FLOOR, lambda p, w, x: p.memory_floor("writev_us"), SMALL)],
        [Field("value", "Latency on one host", "µs")], "message size", True, "UCX tag", HERE)


def bandwidth():
    def ours(verb):
        return Line(verb, OURS, lambda p, w, x: p.bandwidth(w, verb, x, STREAM), LARGE)

    def ucx(name, test):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_bandwidth(w, test, x, BEST), LARGE)

    def floor(name, key):
        return Line(name, FLOOR, lambda p, w, x: p.memory_floor(f"{key}_{FLOOR_KEY[x]}", 8), LARGE)

    return Question(
        "memory-bandwidth", "Bandwidth on one host",
        "perftest ib_*_bw beside UCX, libfabric's shm provider (fi_pingpong: one message at a time) and the floors: memcpy "
        "from private into shared memory, and process_vm_writev",
        [ucx("UCX put", "ucp_put_bw"), ucx("UCX tag", "tag_bw"),
         Line("libfabric shm", RIVAL, lambda p, w, x: p.libfabric_bandwidth(w, x), LARGE)] +
        [ours(verb) for verb in ("write", "read", "send")] + [floor("memcpy", "memcpy"), floor("process_vm_writev", "writev")],
        [Field("value", "Bandwidth on one host", "Gb/s", True)], "message size", True, "UCX tag", HERE)


def rate():
    def ours(verb):
        return Line(verb, OURS, lambda p, w, x: p.rate(w, verb, x, MESSAGES), [1, 8])

    def ucx(name, test, transports):
        return Line(name, RIVAL, lambda p, w, x: p.ucx_rate(w, test, transports))

    return Question(
        "memory-rate", "Message rate on one host", "8-byte messages; perftest ib_*_bw -q beside UCX",
        [ucx("UCX tag", "tag_bw", BEST), ucx("UCX put", "ucp_put_bw", SHARED), ours("send"), ours("write")],
        [Field("value", "Message rate on one host", "M/s", True)], "queue pairs", rival="UCX tag", worlds=HERE)


def cpu():
    def ours(name, verb, *extra):
        return Line(name, OURS, lambda p, w, x: p.cpu(w, verb, extra))

    return Question(
        "memory-cpu", "CPU time per GB on one host", "as over the links; 1 MiB messages",
        [Line("iperf3", RIVAL, lambda p, w, x: p.tcp_cpu(w)), ours("write, polling", "write"),
         ours("send, sleeping", "send", "-e")],
        [Field("value", "CPU time per GB on one host", "s/GB", log=False)], rival="iperf3", worlds=HERE)


def questions():
    return [latency(), bandwidth(), rate(), cpu()]
