# SPDX-License-Identifier: MIT
"""Numbers that must not be guessed, and what a guess costs."""
import math
import random
import time

from packet import UC, WRITE_ONLY, bth, reth
from world import B, ERR, REM_ACCESS_ERR, RTS, End, Forger, check, tell, until

PROCESSES, KEYS, PAIRS = 16, 128, 8


def _balanced(values, bits, what):
    """Every bit, and every bit of the change from one to the next, is one half of the time (5 sigma)."""
    changes = [x ^ y for x, y in zip(values, values[1:])]
    worst = 0
    for sample in (values, changes):
        for bit in range(bits):
            ones = sum(v >> bit & 1 for v in sample)
            worst = max(worst, abs(ones - len(sample) / 2) / (math.sqrt(len(sample)) / 2))
    check(worst < 5, f"{what}: all {bits} bits of {len(values)} are balanced, the worst by {worst:.1f} sigma")


def _no_sequence(values, what):
    steps = [y - x for x, y in zip(values, values[1:])]
    common = max(steps.count(s) for s in set(steps))
    check(common <= 3, f"{what}: no step from one to the next is common")


def numbers_are_random(w):
    """rkeys and QP numbers of many processes, as an attacker would collect them"""
    rkeys, qpns, slots, twice = [], [], [], 0
    for _ in range(PROCESSES):
        v = w.victim_a()
        mine = list(v.ask("keys", KEYS).values())
        twice += KEYS - len(set(mine))
        rkeys += mine
        ends = [End(v) for _ in range(PAIRS)]
        qpns += [e.qpn & 0x7FFF for e in ends]
        slots.append(ends[0].qpn >> 15)
        v.kill()
    check(not twice, f"no key came twice in one of {PROCESSES} processes, though half were given back at once")
    _balanced(rkeys, 32, "rkeys")
    _no_sequence(rkeys, "rkeys")
    # 2,048 of 2^32 meet by chance once in 2,000 runs; of fewer than 2^20 they would nearly always.
    check(len(rkeys) - len(set(rkeys)) <= 1, f"rkeys: {len(set(rkeys))} of {len(rkeys)} differ")
    _balanced(qpns, 15, "QP numbers")
    _no_sequence(qpns, "QP numbers")
    check(len(set(slots)) > PROCESSES // 2, f"slots: {len(set(slots))} of {len(slots)} processes have one of their own")
    _no_sequence(slots, "slots")
    tell("the first PSN is the program's to choose: verbs take it from there")


def guessing_keys_costs_a_connection_each(w):
    """the right peer, who may try any rkey it likes"""
    a, b = w.victim_a(), w.victim_b()
    began = time.monotonic()
    tries = 30
    for _ in range(tries):
        target, thief = w.pair(a, b)
        guess = random.getrandbits(32)
        if guess in (target.rkey, 0):
            continue
        if thief.post("w", target, rkey=guess) or thief.wait() != REM_ACCESS_ERR or target.state() != ERR:
            check(False, "a wrong key is refused and ends the connection")
        if target.touched():
            check(False, "no byte is written")
    rate = tries / (time.monotonic() - began)
    check(True, f"{tries} wrong keys: each refused, each at the price of the connection, no byte written")
    tell(f"at {rate:.0f} connections a second half of 2^32 keys take {2 ** 31 / rate / 86400:.0f} days")


def guessing_keys_over_uc(w):
    """an unreliable connection has no NAK: a wrong key is dropped, and the next may be tried at once"""
    a, _ = w.pair(kind="uc")
    c = Forger(w, B)
    for psn in range(3000):
        guess = random.getrandbits(32)
        if guess != a.rkey:
            c.send(bth(UC | WRITE_ONLY, a.qpn, psn) + reth(a.addr, guess, 64) + b"!" * 64)
    until(lambda: a.count("dropped") == c.sent, "judged")
    check(a.touched() == 0, f"{c.sent} wrong keys: none opened anything")
    check(a.state() == RTS, "CANNOT HOLD: they cost the forger nothing; at 3 million a second half of them take 12 minutes")
    tell("give no remote rights to unreliable connections where the peer's address can be forged")
