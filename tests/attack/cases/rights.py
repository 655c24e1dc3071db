# SPDX-License-Identifier: MIT
"""The attacker is the peer itself: it has a connection and a key, and wants more than it was given."""
from world import A, B, ERR, REM_ACCESS_ERR, RETRY_EXC_ERR, SUCCESS, End, check

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND = 1, 2, 4, 8, 16
REGION, SIZE = 8192, 4096  # of the endpoint's buffer


class _Try:
    """A connection whose target has a region of SIZE bytes at REGION, with the rights given."""

    def __init__(self, w, a, b, access):
        self.target, self.thief = w.pair(a, b)
        self.victim, self.base = a, self.target.addr + REGION
        said = a.ask("mr", self.target.ep, access, REGION, SIZE)
        self.mr, self.rkey = said["mr"], said["rkey"]

    def ask(self, what, off, length, rkey=None):
        self.thief.post(what, self.target, length, rkey=self.rkey if rkey is None else rkey, addr=self.base + off)
        return self.thief.wait()

    def refused(self, what, off, length, name, rkey=None):
        status = self.ask(what, off, length, rkey)
        check(status == REM_ACCESS_ERR and self.target.state() == ERR and self.target.touched() == 0, name + ": refused")

    def allowed(self, what, off, length, name, rkey=None):
        check(self.ask(what, off, length, rkey) == SUCCESS, name + ": allowed")


def peer_leaves_its_region(w):
    """one byte before, one byte behind, around the end of memory, and exactly inside"""
    a, b = w.victim_a(), w.victim_b()
    full = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
    for what, name in (("w", "WRITE"), ("r", "READ")):
        inside = _Try(w, a, b, full)
        inside.allowed(what, 0, SIZE, f"{name} of all of it")
        inside.allowed(what, SIZE, 0, f"{name} of nothing at its end")
        _Try(w, a, b, full).refused(what, -1, 1, f"{name} of the byte before it")
        _Try(w, a, b, full).refused(what, -1, SIZE, f"{name} that begins a byte too early")
        _Try(w, a, b, full).refused(what, 1, SIZE, f"{name} that ends a byte too late")
        _Try(w, a, b, full).refused(what, SIZE, 1, f"{name} of the byte behind it")
        t = _Try(w, a, b, full)
        t.base = 0
        t.refused(what, (1 << 64) - 32, 64, f"{name} around the end of the address space")


def peer_exceeds_its_rights(w):
    """a key for reading used to write, a key for writing used to read, a key for nothing"""
    a, b = w.victim_a(), w.victim_b()
    _Try(w, a, b, REMOTE_READ).refused("w", 0, 64, "WRITE to what may be read")
    _Try(w, a, b, REMOTE_READ).allowed("r", 0, 64, "READ of what may be read")
    _Try(w, a, b, LOCAL_WRITE | REMOTE_WRITE).refused("r", 0, 64, "READ of what may be written")
    _Try(w, a, b, LOCAL_WRITE).refused("w", 0, 64, "WRITE to what is local")
    _Try(w, a, b, LOCAL_WRITE).refused("r", 0, 64, "READ of what is local")


def peer_uses_another_domains_key(w):
    """the key is good, but belongs to another protection domain of the same program"""
    a, b = w.victim_a(), w.victim_b()
    t, other = _Try(w, a, b, LOCAL_WRITE | REMOTE_WRITE), End(a)
    before = other.touched()
    t.thief.post("w", other)
    check(t.thief.wait() == REM_ACCESS_ERR and other.touched() == before == 0, "a key of another domain: refused")
    t = _Try(w, a, b, LOCAL_WRITE | REMOTE_WRITE)
    same = End(a, share=t.target.ep + 1)
    t.thief.post("w", same)
    check(t.thief.wait() == SUCCESS, "the same with a key of its own domain: allowed")


def peer_keeps_a_key(w):
    """a key after its region is gone, and after its QP is gone"""
    a, b = w.victim_a(), w.victim_b()
    t = _Try(w, a, b, LOCAL_WRITE | REMOTE_WRITE)
    a.ask("dereg", t.mr)
    t.refused("w", 0, 64, "WRITE after the region was deregistered")
    target, thief = End(a), End(b)
    target.connect(B, thief, 10, 1)
    thief.connect(A, target, 10, 1)
    a.ask("drop", target.ep)
    thief.post("w", target)
    check(thief.wait() == RETRY_EXC_ERR and target.touched() == 0, "WRITE after the QP was destroyed: no answer")


def peer_leaves_its_window(w):
    """a type 2 memory window: bounds, rights, and another QP of the same domain"""
    a, b = w.victim_a(), w.victim_b()
    full = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | MW_BIND

    def window(access):
        t = _Try(w, a, b, full)
        said = a.ask("mw", t.target.ep, t.mr, REGION + 1024, 1024, access)
        check(said["status"] == SUCCESS, "a window is bound") if said["status"] else None
        return t, said["rkey"]

    t, key = window(REMOTE_WRITE)
    t.allowed("w", 1024, 1024, "WRITE of all of the window", key)
    t, key = window(REMOTE_WRITE)
    t.refused("w", 1023, 1, "WRITE of the byte before the window", key)
    t, key = window(REMOTE_WRITE)
    t.refused("w", 2048, 1, "WRITE of the byte behind the window", key)
    t, key = window(REMOTE_WRITE)
    t.refused("r", 1024, 64, "READ through a window for writing", key)
    t, key = window(REMOTE_WRITE)
    other, thief = End(a, share=t.target.ep + 1), End(b)
    other.connect(B, thief)
    thief.connect(A, other)
    thief.post("w", t.target, 64, rkey=key, addr=t.base + 1024)
    check(thief.wait() == REM_ACCESS_ERR and t.target.touched() == 0, "the window over another QP: refused")
