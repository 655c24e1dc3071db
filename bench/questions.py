# SPDX-License-Identifier: MIT
"""What is asked of the wire. memory.py asks of the paths through shared memory."""
import fabric
import fabric_cm
import fabric_data
import memory
import worlds
from programs import BEFORE
from question import FLOOR, INFO, OURS, RIVAL, Field, Line, Question

SIZES = [2, 8, 64, 512, 4096, 32768, 262144, 1 << 20, 4 << 20]
QUICK_SIZES = [8, 1 << 20]  # where the goals are
PACKET_SIZES = [8, 512, 4096]      # what fits a packet
SOCKPERF_SIZES = [8, 4096, 65536]  # sockperf knows 14 to 65507 bytes: the ends are moved there
QPS = [1, 4, 16, 64, 256, 1000]
GUEST_SIZES = [8, 65536]
IDLE_QPS = [1, 10, 100, 1000, 4000]
VERBS = ("write", "send", "read")


def builds(before):
    """What stands behind a verb in the name of a line, and the build that it measures (run --before)."""
    return {"": None} | ({", before": BEFORE} if before else {})


def bandwidth(sizes, before=False):
    def ours(verb, suffix, way):
        return Line(verb + suffix, OURS, lambda p, w, x: p.bandwidth(w, verb, x, 1.0 if x == 1 << 20 else 0.3, way=way), sizes)

    def floor(into):
        return Line(f"floor, {into}", FLOOR, lambda p, w, x: p.floor_bandwidth(w, into))

    return Question(
        "bandwidth", "Bandwidth over message size",
        "perftest ib_*_bw beside one TCP stream (iperf3) and the floor: bare UDP_SEGMENT packets with a CRC, the payload "
        "left in the receive buffer, copied to its place, or received there by iovec",
        [Line("iperf3", RIVAL, lambda p, w, x: p.tcp_bandwidth(w))] +
        [ours(v, suffix, way) for suffix, way in builds(before).items() for v in VERBS] +
        [floor(i) for i in ("buffer", "copy", "scatter")],
        [Field("value", "Bandwidth over message size", "Gb/s", True),
         Field("value", "Bandwidth of large messages", "Gb/s", True, False, x_from=4096, tabled=False, name="large")],
        "message size", True, "iperf3")


def latency(sizes, before=False):
    few = SOCKPERF_SIZES if len(sizes) > 1 else sizes

    def tcp(name, role, *options):
        return Line(name, role, lambda p, w, x: p.sockperf_latency(w, x, options), few if role == RIVAL else few[:1])

    def floor(name, spin):
        return Line(name, FLOOR, lambda p, w, x: p.floor_latency(w, min(x, w.payload), spin),
                    [s for s in PACKET_SIZES if s in sizes])

    def ours(verb, suffix, way):
        return Line(verb + suffix, OURS, lambda p, w, x: p.half_latency(w, verb, x, way=way), sizes)

    sleeping = Line("send, sleeping", OURS, lambda p, w, x: p.half_latency(w, "send", x, ["-e"]), [s for s in sizes if s <= 4096])
    return Question(
        "latency", "Latency over message size",
        "half a round trip, median; perftest ib_*_lat, which polls (of a READ half of what perftest prints), beside "
        "sockperf's ping-pong over TCP and UDP, spinning (--nonblocked) and blocking, and the floor",
        [tcp("TCP spinning", RIVAL, "--tcp", "--nonblocked"), tcp("TCP blocking", RIVAL, "--tcp"),
         tcp("UDP spinning", INFO, "--nonblocked"), tcp("UDP blocking", INFO)] +
        [ours(v, suffix, way) for suffix, way in builds(before).items() for v in VERBS] +
        [sleeping, floor("floor, spinning", True), floor("floor, blocking", False)],
        [Field("value", "Latency over message size", "µs")], "message size", True, "TCP spinning")


def rate(qps):
    def ours(verb):
        return Line(verb, OURS, lambda p, w, x: p.rate(w, verb, x), qps)

    return Question(
        "rate", "Message rate over active queue pairs", "8-byte messages; perftest ib_*_bw -q, beside sockperf's TCP "
        "throughput with its smallest message, 14 bytes, which TCP packs together",
        [Line("TCP stream", INFO, lambda p, w, x: p.sockperf_rate(w))] + [ours(v) for v in VERBS],
        [Field("value", "Message rate over active queue pairs", "M/s", True)], "queue pairs")


def cpu():
    def ours(name, verb, *extra):
        return Line(name, OURS, lambda p, w, x: p.cpu(w, verb, extra))

    return Question(
        "cpu", "CPU time per GB", "user and system time of both ends with all their threads, plus the machine's "
        "interrupt time; 1 MiB messages. Who polls uses its core whether or not there is something to do",
        [Line("iperf3", RIVAL, lambda p, w, x: p.tcp_cpu(w)), ours("write, polling", "write"),
         ours("send, sleeping", "send", "-e"), ours("read, sleeping", "read", "-e"),
         Line("floor, copy, sleeping", FLOOR, lambda p, w, x: p.floor_cpu(w, "copy")),
         Line("floor, scatter, sleeping", FLOOR, lambda p, w, x: p.floor_cpu(w, "scatter"))],
        [Field("value", "CPU time per GB", "s/GB", log=False)], rival="iperf3")


def connections(counts):
    return Question(
        "connections", "Connected queue pairs", "one process connected to itself, RC, depth 128; one pair of queue pairs "
        "exchanges 8-byte writes while the others are idle",
        [Line("anyrdma", OURS, lambda p, w, x: p.qps(w, x), counts)],
        [Field("message_us", "Cost of one message beside idle queue pairs", "µs", log=False, name="message"),
         Field("qp_kib", "Memory per queue pair", "KiB", log=False, name="memory"),
         Field("connect_us", "Time to create and connect a queue pair", "µs", log=False, name="connect")],
        "queue pairs", worlds=(worlds.LOOPBACK,))


def connect():
    return Question(
        "connect", "Connecting by address", "from an address to a connection which the server's program has accepted. One "
        "after the other, the median of 1,000 (bench/connects.c, for TCP until a byte of the server's comes); and 1,000 "
        "at once, by cmtime, beside as many TCP connections",
        [Line("TCP", RIVAL, lambda p, w, x: p.connects(w, "tcp")), Line("anyrdma", OURS, lambda p, w, x: p.rdma_connects(w))],
        [Field("one_us", "Time of one connect", "µs", log=False, name="one"),
         Field("per_second", "Connections per second", "1/s", True, log=False, name="rate")],
        rival="TCP", worlds=(worlds.LOOPBACK, "veth-1500"))


def kernel(sizes):
    def contender(name, role):
        return Line(name, role, lambda p, w, x: w.measure(name, x), sizes)

    verbs = ("write", "send", "read")
    return Question(
        "kernel", "Beside Linux's own RoCE", "the same perftest commands on the same interface of one guest with Debian's kernel, "
        "rxe to rxe inside the kernel and anyrdma to anyrdma through its UDP sockets. Where the processor cannot virtualise it is "
        "emulated: only the ratios mean something",
        [contender("rxe", RIVAL), contender("anyrdma", OURS)],
        [Field(f"{v}_mbps", f"Bandwidth of ib_{v}_bw in a guest", "MB/s", True, name=f"{v}-bandwidth") for v in verbs] +
        [Field(f"{v}_us", f"Latency of ib_{v}_lat in a guest", "µs", name=f"{v}-latency") for v in verbs],
        "message size", True, "rxe", (worlds.GUEST,))


def siw():
    def contender(name, role):
        return Line(name, role, lambda p, w, x: w.measure(name))

    return Question(
        "siw", "Beside Linux's own iWARP", "the same perftest -R commands in one guest with User Mode Linux, siw to siw inside the kernel and anyrdma "
        "to anyrdma through its TCP sockets, and through shared memory, as it goes on one host unless told otherwise; both ends sleep. A system call is "
        "many times as dear there as on a machine",
        [contender("siw", RIVAL), contender("anyrdma", OURS), contender("shared memory", OURS)],
        [Field("send_mbps", "Bandwidth of ib_send_bw -e, 64 KiB, in a guest", "MB/s", True, log=False, name="send-bandwidth"),
         Field("read_mbps", "Bandwidth of ib_read_bw -e, 64 KiB, in a guest", "MB/s", True, log=False, name="read-bandwidth"),
         Field("send_us", "Latency of ib_send_lat -e, 8 bytes, in a guest", "µs", log=False, name="send-latency")],
        rival="siw", worlds=(worlds.SIW,))


def iwarp_bandwidth(sizes):
    def ours(verb, crc):
        return Line(verb + (", CRC" if crc else ""), OURS, lambda p, w, x: p.iwarp_bandwidth(w, verb, x, crc), sizes)

    return Question(
        "iwarp-bandwidth", "Bandwidth over iWARP", "perftest -R ib_*_bw over TCP, with and without the CRC, beside one plain stream (iperf3)",
        [Line("iperf3", RIVAL, lambda p, w, x: p.tcp_bandwidth(w))] + [ours(v, c) for c in (False, True) for v in ("write", "read")],
        [Field("value", "Bandwidth over iWARP", "Gb/s", True)], "message size", True, "iperf3", ("veth-1500",))


def iwarp_latency():
    def tcp(name, *options):
        return Line(name, RIVAL, lambda p, w, x: p.sockperf_latency(w, x, ("--tcp", *options)), [8])

    return Question(
        "iwarp-latency", "Latency over iWARP", "half a round trip, median; perftest -R ib_*_lat beside sockperf's TCP ping-pong",
        [tcp("TCP spinning", "--nonblocked"), tcp("TCP blocking")] +
        [Line(v, OURS, lambda p, w, x, v=v: p.iwarp_latency(w, v, x), [8]) for v in VERBS],
        [Field("value", "Latency over iWARP", "µs")], "message size", True, "TCP spinning", ("veth-1500",))


def all_questions(quick, before=False):
    if not quick:
        return [bandwidth(SIZES, before), latency(SIZES, before), rate(QPS), cpu(), connections(IDLE_QPS), connect(),
                *memory.questions(before), iwarp_bandwidth([4096, 65536, 1 << 20]), iwarp_latency(), kernel(GUEST_SIZES), siw(), *fabric.questions(), *fabric_data.questions(),
                *fabric_cm.questions()]
    asked = [bandwidth(QUICK_SIZES, before), latency(QUICK_SIZES[:1], before), rate([1, 16]), cpu(), connections([1, 1000]),
             connect()]
    for q in asked[2:4]:
        q.worlds = worlds.LINKS[-1:]  # one link will do
    return asked + memory.questions(before)
