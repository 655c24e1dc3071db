# SPDX-License-Identifier: MIT
"""The attacker sends in the peer's name. What then holds is a matter of numbers it does not know; the cases called
known_* give it those numbers and show what only encryption can prevent."""
import os
import time

from packet import ACK, NAK, READ_REQUEST, READ_RESPONSE_ONLY, SEND_ONLY, UD, WRITE_ONLY, aeth, bth, deth, icrc, reth
from world import A, A_BY_C, B, ERR, REM_ACCESS_ERR, RTS, SUCCESS, End, Forger, check, sh, tell, until

NEAR = 1 << 21


def spoofed_requests_sweep_psns(w):
    """the right QP number and the 4 million PSNs around the expected one, but not that, from the peer's address"""
    a, b = w.pair()
    for first in (a.psn_in + 1, a.psn_in - NEAR):
        r = Forger(w, B).sweep(a.victim, SEND_ONLY, a.qpn, first, NEAR, "psn",
                               [("duplicates", a.qpn), ("out_of_sequence", a.qpn)])
        check(r["judged"] == NEAR, "all were taken for early or for duplicates; none was executed")
    check(a.count("naks_sent") == 1, "the early ones were complained of once")
    tell(f"{a.count('tx_packets')} acknowledges went to the peer, which ignored {b.count('stale_responses')} of them")
    b.works_with(a, "the connection is unharmed")


def spoofed_requests_beside_traffic(w):
    """PSNs at random, from the peer's address, while the peer is sending"""
    a, b = w.pair()
    c = Forger(w, B)
    c.patient = False
    b.stream(a)
    end = time.monotonic() + 1
    while time.monotonic() < end or c.sent < 5000:
        # Without payload and without a receive posted even a hit only makes the peer wait.
        c.send(bth(SEND_ONLY, a.qpn, int.from_bytes(os.urandom(3), "big")))
    b.streamed(f"{c.sent} forged requests")
    b.works_with(a, "the connection is unharmed")
    tell(f"the peer sent {b.count('retransmits')} packets again: a forger can slow a connection down")


def damaged_packets_are_dropped(w):
    """right in everything, from the peer's address, but for the ICRC; and of lengths that no packet has"""
    a, b = w.pair()
    c = Forger(w, B)
    count = a.victim.counters().get
    a.victim.ask("recv", a.ep, 4096, 64)
    right = (bth(WRITE_ONLY, a.qpn, a.psn_in) + reth(a.addr, a.rkey, 64) + b"!" * 64, bth(SEND_ONLY, a.qpn, a.psn_in) + b"!" * 64)
    for frame in right:
        c.send(frame, good=False)
    for bit in range(8 * 4):
        whole = right[0] + icrc(B, A, right[0])
        c.raw(whole[:-4] + bytes(x ^ (1 << bit >> 8 * i & 0xFF) for i, x in enumerate(whole[-4:])))
    damaged = c.sent
    for more in range(1, 4):
        frame = right[0] + b"!" * more
        c.raw(frame + icrc(B, A, frame))
    c.raw(right[0][:8])
    until(lambda: sum(count(n) for n in ("rx_packets", "bad_icrc", "bad_length")) == c.sent, "all are judged")
    check(count("bad_icrc") == damaged, f"{damaged} were counted as damaged")
    check(count("bad_length") == c.sent - damaged, f"{c.sent - damaged} as of a length that no packet has")
    check(a.count("rx_packets") == 0 and a.touched() == 0 and a.victim.ask("poll", a.ep)["status"] == -1,
          f"none of {c.sent} was executed")
    check(b.count("rx_packets") == 0, "none was answered")
    b.works_with(a, "the connection is unharmed")


def spoofed_requests_to_another_address(w):
    """right in everything, from the peer's address, but sent to another address of the host than the connection has"""
    a, b = w.pair()
    c = Forger(w, B)
    c.send(bth(WRITE_ONLY, a.qpn, a.psn_in) + reth(a.addr, a.rkey, 64) + b"!" * 64, to=A_BY_C)
    c.send(bth(SEND_ONLY, a.qpn, a.psn_in), to=A_BY_C)
    _judged(a, c.sent)
    check(a.count("wrong_peer") == c.sent and a.touched() == 0, "none was taken")
    ud = End(a.victim, "ud")
    a.victim.ask("datagrams", ud.ep, 0x1BADCAFE)
    a.victim.ask("recv", ud.ep, 0, 4096)
    c.send(bth(UD | SEND_ONLY, ud.qpn, 0) + deth(0x1BADCAFE, 7) + bytes(64), to=A_BY_C)
    _judged(ud, 1)
    check(ud.count("wrong_peer") == 1 and a.victim.ask("poll", ud.ep)["status"] == -1, "nor a datagram for another device")
    b.works_with(a, "the connection is unharmed")


def _outstanding(w, timeout=19, retry=7):
    """A request of A that is not answered, since B is stopped. Returns the ends; its PSN is a.psn_out."""
    a, b = w.pair(timeout=timeout, retry=retry)
    b.victim.stop()
    a.post("w", b, 64)
    until(lambda: a.count("tx_packets") >= 1, "the request has left")
    return a, b


def _judged(a, n):
    until(lambda: a.count("rx_packets") >= n, "all packets were looked at")


def spoofed_naks_beside_the_window(w):
    """every syndrome there is, from the peer's address, for PSNs that are not outstanding"""
    a, b = _outstanding(w)
    c = Forger(w, B)
    for syndrome in range(256):
        for psn in (a.psn_out - 1, a.psn_out + 1, a.psn_out + 2, a.psn_out + (1 << 23), a.psn_out - (1 << 22)):
            c.send(bth(ACK, a.qpn, psn) + aeth(syndrome, 0))
    _judged(a, c.sent)
    check(a.count("stale_responses") == c.sent, f"{c.sent} were ignored and counted")
    check(a.state() == RTS and a.victim.ask("poll", a.ep)["status"] == -1, "the request is still under way")
    b.victim.go_on()
    check(a.wait() == SUCCESS, "and succeeds when the peer answers")
    a.works_with(b, "the connection is unharmed")


def one_forged_nak_does_not_kill(w):
    """a fatal NAK from the peer's address that hits the PSN in flight, but cannot know the peer's MSN"""
    a, b = _outstanding(w)
    c = Forger(w, B)
    for syndrome, what in NAK.items():
        if syndrome == 0x60:
            continue  # a sequence error only makes the requester send again
        for msn in (2, 1000, 0x800000, 0xFFFFFF):
            c.send(bth(ACK, a.qpn, a.psn_out) + aeth(syndrome, msn))
        _judged(a, c.sent)
        check(a.state() == RTS and a.victim.ask("poll", a.ep)["status"] == -1, f"{what}: not believed")
    b.victim.go_on()
    check(a.wait() == SUCCESS, "the request succeeds when the peer answers")
    a.works_with(b, "the connection is unharmed")


def forged_nak_is_believed_when_the_peer_is_silent(w):
    """the other side of doubt: a peer that counts MSNs in another way is still believed, later"""
    a, b = _outstanding(w, timeout=12, retry=2)
    b.victim.kill()
    Forger(w, B).send(bth(ACK, a.qpn, a.psn_out) + aeth(0x62, 1000))
    check(a.wait() == REM_ACCESS_ERR, "the request failed with what the NAK had said, once the retries were used up")


def blind_naks_beside_traffic(w):
    """fatal NAKs for every PSN that may be in flight, from the peer's address"""
    with open(w.tmp + "/log", "wb") as log:
        a, b = w.pair(w.victim_a(stderr=log, ANYRDMA_LOG="debug"))
    a.stream(b)
    # A connection that has done a little: its MSN is then no small number.
    until(lambda: a.count("tx_packets") > 20000, "some traffic")
    a.victim.busy = True
    for i in range(3):
        # What leaves A while B is stopped stays in flight, on however slow a machine.
        b.victim.stop()
        before = a.count("tx_packets")
        until(lambda: a.count("tx_packets") > before, "something is in flight")
        news = a.count("tx_packets") - a.count("retransmits") - a.count("probes")
        here = a.psn_out + news * 32 // 17  # a round: 16 packets and a READ of 16
        r = Forger(w, B).sweep(a.victim, ACK, a.qpn, here - (1 << 15), 1 << 18, "psn", [("stale_responses", a.qpn)])
        b.victim.go_on()
        with open(w.tmp + "/log", encoding="ascii") as log:
            hits = log.read().count("impossible MSN")
        check(hits > i, f"sweep {i + 1}: of {r['sent']} some hit the window, {hits} so far, and were not believed")
    a.streamed("traffic went on meanwhile")
    a.works_with(b, "the connection is unharmed")


def one_forged_read_response_does_not_kill(w):
    """a READ response of the wrong length, from the peer's address, that hits the PSN in flight"""
    a, b = w.pair(timeout=19)
    b.victim.stop()
    a.post("r", b, 64)
    until(lambda: a.count("tx_packets") >= 1, "the request has left")
    c = Forger(w, B)
    c.send(bth(READ_RESPONSE_ONLY, a.qpn, a.psn_out) + aeth(0x1F, 1000) + b"!" * 32)
    _judged(a, 1)
    check(a.state() == RTS and a.touched() == 0, "not believed, no byte written")
    b.victim.go_on()
    check(a.wait() == SUCCESS, "the request succeeds when the peer answers")


def spoofed_write_needs_the_key(w):
    """the peer's address, the QP number and the PSN are known, the key is guessed"""
    a, b = w.pair(timeout=14)  # the peer's request will not be answered
    Forger(w, B).send(bth(WRITE_ONLY, a.qpn, a.psn_in) + reth(a.addr, a.rkey ^ 1, 64) + b"!" * 64)
    until(lambda: a.state() == ERR, "the QP goes to ERR")
    check(a.touched() == 0, "no byte was written")
    check(b.post("w", a) == 0 and b.wait() != SUCCESS, "CANNOT HOLD: the connection is gone, as IBA 9.7.4 wants it")
    tell("a forger who hits QP number and PSN has one try: 1 in 2^24 when it knows the QP number, 1 in 2^48 if not")


def known_numbers_inject_a_message(w):
    """what an eavesdropper can do who forges the peer's address: all numbers are known"""
    a, b = w.pair()
    c = Forger(w, B)
    a.victim.ask("recv", a.ep, 0, 64)
    c.send(bth(SEND_ONLY, a.qpn, a.psn_in) + b"!" * 64)
    check(a.wait() == SUCCESS and a.touched() == 64, "CANNOT HOLD: a forged message is delivered")
    c.send(bth(WRITE_ONLY, a.qpn, a.psn_in + 1) + reth(a.addr + 1024, a.rkey, 64) + b"!" * 64)
    until(lambda: a.touched(1024, 64) == 64, "CANNOT HOLD: forged data is written")
    check(b.state() == RTS, "the peer knows nothing of it")


def known_numbers_forge_a_nak(w):
    """an eavesdropper knows the MSN too"""
    a, _ = _outstanding(w)
    Forger(w, B).send(bth(ACK, a.qpn, a.psn_out) + aeth(0x62, 0))
    check(a.wait() == REM_ACCESS_ERR, "CANNOT HOLD: a NAK that is right in everything ends the connection")


def spoofed_reads_go_to_the_peer(w):
    """READ as an amplifier: small requests in the peer's name, with and without the key"""
    a, b = w.pair(timeout=19)
    check(b.post("r", a, 4096) == 0 and b.wait() == SUCCESS, "the peer has read 4 KiB")
    a.heard_out(b)
    c = Forger(w, B)
    sent, repeated = a.count("tx_packets"), a.count("duplicates")
    for i in range(200):
        c.send(bth(READ_REQUEST, a.qpn, a.psn_in) + reth(a.addr, a.rkey ^ (i + 1), 4096))
    until(lambda: a.count("duplicates") == repeated + c.sent, "judged")
    check(a.count("tx_packets") == sent, f"{c.sent} repeated with another key: no answer")
    c.send(bth(READ_REQUEST, a.qpn, a.psn_in) + reth(a.addr, a.rkey, 65536))
    until(lambda: a.count("duplicates") == repeated + c.sent, "judged")
    check(a.count("tx_packets") == sent, "repeated with the key, but longer than what was read: no answer")
    check(w.received_by_c() == 0, "the forger never sees an answer")
    b.works_with(a, "the connection is unharmed")


def reverse_path_filter_stops_spoofing(w):
    """what a user can do without encryption: net.ipv4.conf.*.rp_filter=1 on the interface to the forger"""
    a, b = w.pair()
    c = Forger(w, B)
    sh("echo 1 >/proc/sys/net/ipv4/conf/ac/rp_filter")
    for _ in range(100):
        c.send(bth(WRITE_ONLY, a.qpn, a.psn_in) + reth(a.addr, a.rkey, 64) + b"!" * 64)
    c.close()
    own = Forger(w)
    own.send(bth(SEND_ONLY, a.qpn, 0))
    until(lambda: a.count("wrong_peer") == 1, "a packet in its own name arrives after them")
    check(a.count("rx_packets") == 1 and a.touched() == 0, "the kernel let none of the forged ones through")
    a.works_with(b, "the connection is unharmed")
