# SPDX-License-Identifier: MIT
"""Connection management: forged requests, and forged messages about connections that there are."""
import os
import random
import socket

from mad import (APR, CONSUMER, DREP, INVALID_COMM_ID, LAP, REP, REQ, RTU, STALE, TIMEOUT, Sniffer, dreq,
                 ids, ip_header, mra, rej, rep, req, tcp_service)
from world import A, B, C, End, Forger, check, sh, tell, until

CONNECT_REQUEST, CONNECT_RESPONSE, ESTABLISHED, DISCONNECTED, NONE = 4, 5, 9, 10, -1  # events
PATIENT = 40000


def _expect(victim, event, ms=PATIENT):
    said = victim.ask("cm_event", ms)
    if said["event"] != event:
        check(False, f"event {event} was expected, not {said}")
    return said


def _quiet(*ends):
    """Nobody was told of anything."""
    return all(end.victim.ask("cm_event", 0)["event"] == NONE for end in ends)


def _connect(a, b, port, *options):
    """B's end connects to A's."""
    b.victim.ask("cm_connect", b.ep, A, port, *options)
    _expect(a.victim, CONNECT_REQUEST)
    a.victim.ask("cm_accept", a.ep)
    _expect(b.victim, CONNECT_RESPONSE)
    b.victim.ask("cm_establish", b.ep)
    _expect(a.victim, ESTABLISHED)


class _Connection:
    """Made by rdma_cm from B to A, which listens; and what went over the wire meanwhile."""

    def __init__(self, w, backlog=64, options=()):
        self.wire = Sniffer("ab")
        self.a, self.b = End(w.victim_a(MALLOC_ARENA_MAX="1")), End(w.victim_b())
        self.port = self.a.victim.ask("cm_listen", backlog)["port"]
        _connect(self.a, self.b, self.port, *options)
        self.req, self.rep = self.wire.last(REQ), self.wire.last(REP)
        self.id_a, self.id_b = self.rep.local, self.req.local

    def request(self, c, local, qpn, **more):
        return req(c.name, A, tcp_service(self.port), local, qpn, **more)

    def unharmed(self, what):
        check(_quiet(self.a, self.b), what)
        self.b.works_with(self.a, "the connection is unharmed")


def _seen(victim):
    return sum(victim.counters().get("mads_" + how) for how in ("received", "unclaimed", "dropped"))


def _judged(victim, before, n):
    until(lambda: _seen(victim) >= before + n, "all messages were looked at")


def _about(c, local, remote, qpn):
    """One of each kind about a connection, as if its peer said it."""
    kinds = [rep(local, remote), ids(RTU, local, remote), dreq(local, remote, qpn), ids(DREP, local, remote),
             ids(LAP, local, remote), ids(APR, local, remote)]
    kinds += [mra(local, remote, about) for about in range(3)]
    kinds += [rej(local, remote, reason, about) for about in range(3)
              for reason in (TIMEOUT, INVALID_COMM_ID, STALE, CONSUMER)]
    for packet in kinds:
        c.send(packet)
    return len(kinds)


def _wrong(right):
    """Ids that are not the right one: near it, and anywhere."""
    return [right ^ 1 << bit for bit in range(32)] + [int.from_bytes(os.urandom(4), "big") | 1 for _ in range(8)]


def stranger_floods_connection_requests(w):
    """requests from several addresses, each with another id and QP number"""
    backlog = 512
    k = _Connection(w, backlog)
    names = [f"10.78.0.{n}" for n in range(10, 14)]
    for name in names:
        sh(f"ip addr add {name}/32 dev ca", w.host_c)
        sh(f"ip neigh replace {name} lladdr 02:00:00:00:00:03 dev ac nud permanent")
    forgers = [Forger(w, name) for name in names]
    numbers = iter(random.sample(range(2, 1 << 24), backlog + 4000))  # none twice: that would be a stale connection

    def flood(n):
        before, cpu = _seen(k.a.victim), k.a.victim.ask("cpu")["us"]
        for i in range(n):
            c = forgers[i % len(forgers)]
            c.send(k.request(c, random.getrandbits(32) | 1, next(numbers)))
        _judged(k.a.victim, before, n)
        return k.a.victim.ask("cpu")["us"] - cpu

    empty = k.a.victim.ask("memory")["bytes"]
    flood(backlog)
    full = k.a.victim.ask("memory")["bytes"]
    tell(f"a request that waits for the program takes {(full - empty) / backlog:.0f} bytes")
    us = flood(2000)
    check(k.a.victim.ask("memory")["bytes"] - full < 4096, "when the backlog is full 2000 more take no memory")
    tell(f"they took {us / 2000:.1f} us of CPU each, and one by one")
    k.b.stream(k.a)
    flood(2000)
    k.b.streamed("traffic went on beside 2000 more")
    check(w.received_by_c() == 0, "none was answered")
    for _ in range(backlog):
        _expect(k.a.victim, CONNECT_REQUEST)
        k.a.victim.ask("cm_drop")
    k.unharmed("there were as many requests as the backlog holds")
    check(k.a.victim.ask("memory")["bytes"] - empty < 65536, "the program has refused them, and the memory is back")
    a, b = End(k.a.victim), End(k.b.victim)
    _connect(a, b, k.port)
    b.works_with(a, "an honest client connects")


def stranger_knows_a_connection(w):
    """both ids and the QP number are right in every kind of message, only the sender is not the peer"""
    k = _Connection(w)
    c = Forger(w)
    before = _seen(k.a.victim)
    n = _about(c, k.id_b, k.id_a, k.a.qpn)
    for local in _wrong(k.id_b):
        n += _about(c, local, k.id_a, k.a.qpn)
    _judged(k.a.victim, before, n)
    k.unharmed(f"none of {n} messages did anything")
    check(w.received_by_c() <= n, f"{w.received_by_c()} were answered, by one message each")
    c.send(k.request(c, k.id_b, k.b.qpn, guid=k.req.guid))
    _expect(k.a.victim, CONNECT_REQUEST)
    k.unharmed("a request with the peer's id, QP number and GUID is a request of the stranger's own")


def spoofed_messages_sweep_ids(w):
    """every kind of message from the peer's address; one of the two ids is right, or the QP number is wrong"""
    k = _Connection(w)
    c = Forger(w, B)
    before, n = _seen(k.a.victim), 0
    for local in _wrong(k.id_b):
        n += _about(c, local, k.id_a, k.a.qpn)
    for remote in _wrong(k.id_a):
        n += _about(c, k.id_b, remote, k.a.qpn)
    for bit in range(24):
        c.send(dreq(k.id_b, k.id_a, k.a.qpn ^ 1 << bit))
    _judged(k.a.victim, before, n + 24)
    k.unharmed(f"none of {n + 24} messages did anything")
    for reason in (TIMEOUT, STALE, CONSUMER):
        c.send(rej(k.id_b, 0, reason))
    _judged(k.a.victim, before, n + 24 + 3)
    k.unharmed("nor a rejection that names the peer's id alone, as one who has never heard of ours sends it")


def known_ids_end_a_connection(w):
    """what an eavesdropper can do who forges the peer's address: ids and QP number are known"""
    k = _Connection(w)
    Forger(w, B).send(dreq(k.id_b, k.id_a, k.a.qpn))
    _expect(k.a.victim, DISCONNECTED)
    check(_quiet(k.b), "CANNOT HOLD: a forged message disconnects, and the peer knows nothing of it")


def forged_answers_to_a_request(w):
    """A connects to B, which is slow; the forger answers in its place, without knowing A's id"""
    a, b = End(w.victim_a()), End(w.victim_b())
    port = b.victim.ask("cm_listen", 8)["port"]
    wire = Sniffer("ab")
    b.victim.stop()
    a.victim.ask("cm_connect", a.ep, B, port)
    until(lambda: [m for m in wire.listen() if m.attr == REQ], "the request has left")
    mine = wire.last(REQ).local
    spoofer, stranger = Forger(w, B), Forger(w)
    before, n = _seen(a.victim), 0
    for remote in _wrong(mine):
        n += _about(spoofer, 0x1234, remote, a.qpn)
    n += _about(stranger, 0x1234, mine, a.qpn)
    _judged(a.victim, before, n)
    check(_quiet(a), f"{n} answers with wrong ids, or from a wrong address: A still waits")
    b.victim.go_on()
    _expect(b.victim, CONNECT_REQUEST)
    b.victim.ask("cm_accept", b.ep)
    _expect(a.victim, CONNECT_RESPONSE)
    a.victim.ask("cm_establish", a.ep)
    _expect(b.victim, ESTABLISHED)
    b.works_with(a, "the peer's own answer counts")


def requests_in_the_peers_name(w):
    """from the peer's address: its id again with other contents, its QP number under another id"""
    k = _Connection(w)
    c = Forger(w, B)
    before = _seen(k.a.victim)
    c.send(k.request(c, k.id_b, k.b.qpn, psn=77, guid=k.req.guid))
    c.send(k.request(c, k.id_b, k.b.qpn, priv=b"\xff" * 92, guid=k.req.guid))
    _judged(k.a.victim, before, 2)
    k.unharmed("its request again with another PSN and other private data is a duplicate")
    for i in range(500):
        c.send(k.request(c, k.id_b, k.b.qpn ^ (i + 1)))
        c.send(k.request(c, k.id_b ^ (i + 1), k.b.qpn))
    _judged(k.a.victim, before, 1002)
    k.unharmed("1000 that say the peer has lost its memory, without its GUID: refused, nothing ends")
    c.send(k.request(c, k.id_b ^ 1, k.b.qpn, guid=k.req.guid))
    _expect(k.b.victim, DISCONNECTED)
    check(True, "CANNOT HOLD: with the GUID, which is made of the MAC address, one is believed, and A disconnects")


def malformed_connection_requests(w):
    """fields that make no sense, addresses that are not the sender's, and bytes at random"""
    k = _Connection(w, backlog=4)
    c = Forger(w)
    before, n = _seen(k.a.victim), 0
    private = [bytes(92), b"\xff" * 92, ip_header(C, A, version=0x50), b"\1" + ip_header(C, A)[1:]]
    for i, wrong in enumerate([{"priv": p} for p in private] + [{"mtu": 0}, {"mtu": 15}, {"transport": 3}]):
        c.send(k.request(c, 100 + i, 100 + i, **wrong))
        n += 1
    c.send(k.request(c, 0, 200))
    c.send(req(C, A, tcp_service(k.port) | 1 << 40, 201, 201))
    _judged(k.a.victim, before, n + 2)
    k.unharmed("none became a request")
    check(w.received_by_c() == n + 2, "each was refused by one message")
    good = bytearray(k.request(c, 300, 300))
    for _ in range(3000):
        bad = good[:]
        for _ in range(random.randint(1, 8)):
            bad[random.randrange(12, len(bad))] = random.getrandbits(8)
        c.send(bytes(bad[:random.choice((len(bad), len(bad), random.randrange(20, len(bad)))) & ~3]))
    k.b.works_with(k.a, f"the connection is unharmed by {c.sent} of them")
    check(w.received_by_c() <= c.sent, f"{w.received_by_c()} were answered, by one message each")
    while k.a.victim.ask("cm_event", 0)["event"] != NONE:
        pass
    c.send(req("10.66.6.6", A, tcp_service(k.port), 400, 400))
    said = _expect(k.a.victim, CONNECT_REQUEST)
    check(said["from"] == int.from_bytes(socket.inet_aton(C), "big"),
          "a request says where it came from, not what its private data claims")


def connect_options_are_seen_on_the_wire(w):
    """no attack: what an eavesdropper sees of a type of service and an ACK timeout that the client has set"""
    tos, ack_timeout = 0x68, 11
    k = _Connection(w, options=(tos, ack_timeout))
    check(k.req.tclass == tos and k.req.ack_timeout == ack_timeout, "the request names both")
    k.b.works_with(k.a, "the connection works")
    heard = k.wire.listen()
    check({m.attr for m in heard} == {REQ, REP, RTU} and all(m.tos == tos for m in heard), "REQ, REP, RTU have the TOS")
    check(set(k.wire.tos) == {(A, tos), (B, tos)}, f"so has all data, both ways: {sum(k.wire.tos.values())} packets")
    for end in (k.a, k.b):
        check(end.victim.ask("timeout", end.ep)["timeout"] == ack_timeout, "the queue pair has the ACK timeout")
    plain = _Connection(w)
    check(plain.req.tclass == 0 and plain.req.ack_timeout == 17 and {m.tos for m in plain.wire.listen()} == {0},
          "without options: no TOS, 0.5 s")
