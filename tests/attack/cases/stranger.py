# SPDX-License-Identifier: MIT
"""The attacker has an address of its own, and knows or guesses the rest."""
import socket
import struct

from packet import ACK, INDEX, READ_REQUEST, SEND_ONLY, UC, UD, WRITE_ONLY, aeth, bth, deth, echo, reth
from world import A_BY_C, B, C, MAC_A, MAC_C, PORT, End, Forger, check, sh, tell, until

ALL = 1 << 24


def stranger_guesses_queue_pairs(w):
    """an eighth of all QP numbers, the right one among them, from another address"""
    a, b = w.pair()
    first = a.qpn & 0xE00000
    count = ALL // 8 - (first == 0xE00000)  # without the multicast number, which is counted nowhere
    r = Forger(w).sweep(a.victim, SEND_ONLY, first, a.psn_in, count, "qpn", [("no_qp",), ("mads_dropped",), ("wrong_peer", a.qpn)])
    check(r["judged"] == count, "every packet was dropped and counted")
    check(a.count("wrong_peer") == 1, "one of them hit the QP, and was seen not to be the peer's")
    check(w.received_by_c() == 0, "nothing was answered: a guess does not learn whether it hit")
    a.works_with(b, "the connection is unharmed")


def stranger_sweeps_all_psns(w):
    """the right QP number and every PSN there is, from another address, as request and as fatal NAK"""
    a, b = w.pair()
    b.stream(a)
    for opcode, count in ((SEND_ONLY, ALL), (ACK, ALL // 16)):
        r = Forger(w).sweep(a.victim, opcode, a.qpn, 0, count, "psn", [("wrong_peer", a.qpn)])
        check(r["judged"] == count, "every packet was dropped and counted")
        check(r["cpu"] < 10 * r["sent"], "a packet costs the victim less than 10 us")
    check(w.received_by_c() == 0, "nothing was answered")
    b.streamed("the peer's traffic went on meanwhile")
    a.works_with(b, "the connection is unharmed")


def stranger_with_the_right_numbers(w):
    """QP number, PSN, rkey and address all right, only the sender is not the peer"""
    a, b = w.pair()
    c = Forger(w)
    target = reth(a.addr, a.rkey, 64)
    for frame in (bth(WRITE_ONLY, a.qpn, a.psn_in) + target + b"!" * 64, bth(READ_REQUEST, a.qpn, a.psn_in) + target,
                  bth(SEND_ONLY, a.qpn, a.psn_in), bth(ACK, a.qpn, a.psn_out) + aeth(0x62, 0)):
        c.send(frame)
    until(lambda: a.count("wrong_peer") == c.sent, "counted")
    check(a.touched() == 0, "no byte was written")
    check(w.received_by_c() == 0, "no byte was read")
    a.works_with(b, "the connection is unharmed")


def stranger_gets_no_answer(w):
    """every opcode to every kind of QP and to none: what makes a host answer one it does not know?"""
    a, b = w.pair()
    uc, ud, last = End(a.victim, "uc"), End(a.victim, "ud"), End(a.victim)
    uc.connect(B, b)
    a.victim.ask("datagrams", ud.ep, 0x1BADCAFE)
    c = Forger(w)
    for qpn in (a.qpn, uc.qpn, ud.qpn, a.qpn ^ 0x1555, 0, 1, 0xFFFFFF):
        for opcode in range(256):
            for size in (0, 4, 16, 28, 64):
                c.send(bth(opcode, qpn, a.psn_in) + bytes(size))
    for size in range(0, 64):
        c.raw(bytes(size))
        c.send(bth(SEND_ONLY, a.qpn, a.psn_in) + bytes(size), good=False)
    c.send(bth(UD | SEND_ONLY, ud.qpn, 0) + deth(0x1BADCAFE, 7))
    c.send(bth(SEND_ONLY, last.qpn, 0))
    until(lambda: last.count("not_ready") == 1, "the last packet")
    a.works_with(b, f"the connection is unharmed by {c.sent} packets of every opcode and several sizes")
    answers = c.answers()
    echoes = [x for x in answers if x[0] == 0xC1]
    check(len(answers) == len(echoes) == w.received_by_c() == 1, "only the echo request to the datagram QP was answered")
    check(len(echoes[0]) == 12 + 16 + 4, "by a packet as long as its question")


def stranger_floods_echoes(w):
    """echo requests and INDEX packets, as fast as they can be made"""
    a, b = w.pair()
    ud = End(a.victim, "ud")
    a.victim.ask("datagrams", ud.ep, 0x1BADCAFE)
    c = Forger(w)
    c.patient = False
    b.stream(a)
    for i in range(3000):
        c.send(echo(i, a.qpn))
        c.send(echo(i, a.qpn ^ 0x1555))
        c.raw(bth(INDEX, 0, 0) + i.to_bytes(8, "big"))
    b.streamed("traffic went on meanwhile")
    check(w.received_by_c() == 0, f"{c.sent} to a connection, to nobody and INDEX packets: no answer")
    c.sent = 0
    b.stream(a)
    for i in range(3000):
        c.send(echo(i, ud.qpn))
    b.streamed("traffic went on meanwhile")
    check(w.received_by_c() <= c.sent, f"{c.sent} to a datagram QP: {w.received_by_c()} answers, none longer")
    a.works_with(b, "the connection is unharmed")


def stranger_floods_datagrams(w):
    """a datagram QP that has no receive posted, the right Q_Key, then the wrong one"""
    a, b = w.pair()
    ud = End(a.victim, "ud")
    a.victim.ask("datagrams", ud.ep, 0x1BADCAFE)
    c = Forger(w)
    frame = bth(UD | SEND_ONLY, ud.qpn, 0) + deth(0x1BADCAFE, 7) + bytes(256)
    for _ in range(40):
        seen = ud.count("dropped")
        for _ in range(100):
            c.send(frame)
        until(lambda: ud.count("dropped") == seen + 100, "dropped")
    check(w.received_by_c() == 0, f"{c.sent} datagrams without a receive: dropped, counted, not answered")
    a.victim.ask("recv", ud.ep, 0, 4096)
    c.send(bth(UD | SEND_ONLY, ud.qpn, 0) + deth(0x1BADCAFF, 7) + bytes(256))
    until(lambda: ud.count("dropped") == c.sent, "the one with the wrong Q_Key")
    check(a.victim.ask("poll", ud.ep)["status"] == -1, "a wrong Q_Key takes no receive")
    c.send(frame)
    check(a.victim.ask("wait", ud.ep) == {"status": 0, "len": 40 + 256}, "the next good one arrives")
    a.works_with(b, "the connection is unharmed")
    tell("a datagram QP takes what anybody sends who knows its Q_Key: that is what it is for")


def stranger_talks_to_unreliable_connection(w):
    """an unreliable connection takes any PSN; does it take any address?"""
    a, _ = w.pair(kind="uc")
    c = Forger(w)
    a.victim.ask("recv", a.ep, 0, 4096)
    for psn in range(0, ALL, ALL // 500):
        c.send(bth(UC | SEND_ONLY, a.qpn, psn) + b"!" * 64)
        c.send(bth(UC | WRITE_ONLY, a.qpn, psn) + reth(a.addr, a.rkey, 64) + b"!" * 64)
    until(lambda: a.count("wrong_peer") == c.sent, "counted")
    check(a.victim.ask("poll", a.ep)["status"] == -1 and a.touched() == 0, "no receive taken, no byte written")


def _to_all(data, to, device):
    """A broadcast as a program sends it, from the network namespace the caller is in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.sendto(data, (to, PORT))


def _to_all_by_unicast(data, to):
    """A broadcast address in a frame that is for A's interface alone."""
    def mac(text):
        return bytes(int(x, 16) for x in text.split(":"))

    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(data), 0, 0, 64, 17, 0, socket.inet_aton(C), socket.inet_aton(to))
    total = sum(struct.unpack(">10H", ip))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(("ca", 0x0800))
        s.send(mac(MAC_A) + mac(MAC_C) + b"\x08\x00" + ip + struct.pack(">HHHH", PORT, PORT, 8 + len(data), 0) + data)


SURELY_BROADCAST = ("10.78.0.255", "255.255.255.255")  # that the kernel delivers to all sockets, whatever its version


def broadcasts_wake_nobody(w):
    """to every process of the host at once, by every way there is"""
    victims = [w.victim_a() for _ in range(8)]
    ends = [End(v) for v in victims]
    junk = bth(SEND_ONLY, 0x7FFFFF, 0) + bytes(16)
    ways = ["10.78.0.255", "10.78.0.0", "255.255.255.255", "224.0.0.1", "10.77.0.255", "127.255.255.255"]

    def refused():
        return sum(v.counters().get("bad_icrc") for v in victims)

    def burst():
        with w.inside(w.host_c):
            for to in ways[:4]:
                _to_all(junk, to, "ca")
            for to in ways:
                _to_all_by_unicast(junk, to)
        for to, device in (("10.77.0.255", "ab"), ("255.255.255.255", "ab"), ("224.0.0.1", "ab"), ("127.255.255.255", "lo")):
            _to_all(junk, to, device)

    def dropped():
        """What the kernel kept from all sockets of the port."""
        with open("/proc/net/udp", encoding="ascii") as f:
            return sum(int(line.split()[-1]) for line in f if f":{PORT:04X} " in line)

    before, kept = refused(), dropped()
    cpu = [v.ask("cpu")["us"] for v in victims]
    for _ in range(50):
        burst()
    # One that does reach each of them, behind the others on the same way.
    c = Forger(w)
    c.patient = False
    for end in ends:
        c.send(bth(SEND_ONLY, end.qpn, 0), to=A_BY_C, good=False)
    until(lambda: refused() - before >= len(ends), "a packet to each")
    tell(f"{sum(v.ask('cpu')['us'] - x for v, x in zip(victims, cpu)) / 700:.1f} us of all processes' CPU for each of 700 packets")
    check(refused() - before == len(ends), f"{refused() - before - len(ends)} packets that were for nobody reached a process")
    check(dropped() - kept >= 50 * len(victims) * len(SURELY_BROADCAST), "the kernel dropped them, and woke nobody")
    sh("ip addr add 10.99.0.1/24 dev ac")
    sh("ip addr add 10.99.0.2/24 dev ca", w.host_c)
    before = refused()
    with w.inside(w.host_c):
        _to_all(junk, "10.99.0.255", "ca")
    for end in ends:
        c.send(bth(SEND_ONLY, end.qpn, 0), to=A_BY_C, good=False)
    until(lambda: refused() - before >= len(ends), "a packet to each")
    check(refused() - before == len(ends), "nor did one to an address that came later")
    # So late that the kernel still lets it through: who does not know of an address cannot tell it of it.
    for v in victims:
        v.stop()
    sh("ip addr add 10.100.0.1/24 dev ac")
    before = refused()
    with w.inside(w.host_c):
        _to_all_by_unicast(junk, "10.100.0.255")
    for end in ends:
        c.send(bth(SEND_ONLY, end.qpn, 0), to=A_BY_C)
    for v in victims:
        v.go_on()
    until(lambda: all(end.count("not_ready") for end in ends), "a packet to each")
    w.settle()
    check(refused() == before, "nor did one to an address that nobody knew of")
    a, b = w.pair(victims[0])
    a.works_with(b, "what is for a process still comes")
