# SPDX-License-Identifier: MIT
"""The attacker runs as the victim's own user, and connects to the socket of shared memory."""
import ctypes
import json
import os
import select
import signal
import socket
import subprocess

from packet import SEND_ONLY, UC, WRITE_ONLY, bth, reth
from world import A, End, Failure, HERE, PATIENCE, RTS, Victim, check, libc, skip, until

USER, OTHER = 12345, 54321
PYTHON = "/usr/bin/python3"  # which everybody may run
BELL = 4096  # no page that is passed is longer
SECRET = 0x7365637265742121
NO_CAPS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]


def _can(*command):
    return subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _need_root():
    if os.geteuid() or not _can(*NO_CAPS):
        skip("needs root, to have fewer capabilities")


def _need_users():
    """Root of a user namespace is one user only."""
    if os.geteuid() or not _can("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"):
        skip("needs root, to be several users")


class _Intruder:
    """A running intruder.py under some identity; its answer is in `said`."""

    def __init__(self, mode, task, identity=()):
        self.process = subprocess.Popen(
            [*identity, PYTHON, os.path.join(HERE, "intruder.py"), mode, json.dumps(task)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.said = self.hear()

    def hear(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Failure("the intruder does not answer")
        line = self.process.stdout.readline()
        if not line:
            raise Failure("the intruder could not even begin")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def _run_dir(w, user):
    """A run directory of that user's own."""
    os.chmod(w.tmp, 0o711)
    path = f"{w.tmp}/run-{user}"
    os.mkdir(path, 0o700)
    os.chown(path, user, user)
    return path


def _victim(w, user=0, **env):
    if not user:
        return w.victim_a(ANYRDMA_LOCAL="", **env)
    return Victim(w, None, "roce_ab", identity=[f"--reuid={user}", f"--regid={user}", "--clear-groups"],
                  ANYRDMA_DIR=_run_dir(w, user), ANYRDMA_LOCAL="", **env)


def _task(end, slot, **more):
    """What the attacker knows, and what it would like to."""
    def le(value, size):
        return value.to_bytes(size, "little").hex()

    patterns = {"rkey": le(end.rkey, 4), "QPN": le(end.qpn, 4), "address": le(end.addr, 8), "secret": le(SECRET, 8)}
    return dict(slot=slot, pid=end.victim.pid, addr=end.addr, patterns=patterns, **more)


def _holds_secret(victim):
    """A region that peers may write, and one that they may only read; both hold the secret."""
    end = End(victim)
    end.connect(A, end)
    victim.ask("mr", end.ep, 0, 0, 65536)
    for off in (0, 4096, 65528):
        victim.ask("put", end.ep, off, SECRET)
    return end, victim.counters().slot


def _gets_nothing(end, slot, identity, who):
    """Every way of asking, as the attacker's identity; the kernel's own answer is what the library must keep to."""
    i = _Intruder("take", _task(end, slot), identity)
    i.end()
    r = i.said
    check(not r["kernel"], f"{who}: the kernel does not let it into the victim's memory")
    check(r["welcomes"] > 0 and r["exports"] + r["proved"] == 0, f"{who}: {r['welcomes']} connections, and no proof is believed")
    check(all(p["size"] <= BELL for p in r["passed"]), f"{who}: is passed nothing longer than a page: "
          f"{sorted({p['size'] for p in r['passed']})}")
    found = sorted({name for p in r["passed"] for name in p["found"]})
    check(not found, f"{who}: finds none of rkey, QPN, address, secret {found or ''}")
    check(not any(p["written"] for p in r["passed"]), f"{who}: can write to nothing that it was passed")
    check(all(end.victim.ask("get", end.ep, off)["value"] == SECRET for off in (0, 4096, 65528)),
          f"{who}: the victim's memory is unchanged")


def intruder_with_access_is_shown_all(w):
    """the same program where the kernel lets it in: it can prove that, and gets the table of keys, to read"""
    end, slot = _holds_secret(_victim(w))
    i = _Intruder("take", _task(end, slot))
    i.end()
    check(i.said["kernel"], "it can read the victim's memory by itself")
    check(i.said["proved"] == 1 and i.said["exports"] == 0,
          "a right proof is believed once, on the connection it was made for; no guess is")
    found = {name for p in i.said["passed"] for name in p["found"]}
    check({"rkey", "QPN", "address"} <= found and "secret" not in found, "then it sees keys, and no memory")
    check(not any(p["written"] for p in i.said["passed"]), "and can write to nothing")
    check(end.victim.ask("get", end.ep, 0)["value"] == SECRET, "the victim's memory is unchanged")


def intruder_without_capabilities(w):
    """root without capabilities against a root that has them"""
    _need_root()
    end, slot = _holds_secret(_victim(w))
    _gets_nothing(end, slot, NO_CAPS, "root without capabilities")


def intruder_in_another_pid_namespace(w):
    """a container of the same user that shares the network"""
    _need_root()
    end, slot = _holds_secret(_victim(w))
    _gets_nothing(end, slot, ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], "another PID namespace")


def intruder_in_another_user_namespace(w):
    """a rootless container of the same user that shares the network"""
    _need_users()
    end, slot = _holds_secret(_victim(w, USER))
    inside = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "-U", "--map-current-user"]
    if subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        skip("no user namespaces for ordinary users")
    _gets_nothing(end, slot, inside, "another user namespace")


def victim_hides_after_its_start(w):
    """PR_SET_DUMPABLE 0 by a program that has long been running; before it the same user was let in"""
    _need_users()
    end, slot = _holds_secret(_victim(w, USER))
    same = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    early = _Intruder("take", _task(end, slot), same)
    check(early.said["proved"] == 1, "before: let in")
    early.end()
    check(end.victim.ask("dumpable", 0)["errno"] == 0, "now it hides")
    _gets_nothing(end, slot, same, "its own user, afterwards")


def daemon_changes_its_user(w):
    """it began as root, opened the device, registered memory, and became somebody else"""
    _need_users()
    end, slot = _holds_secret(_victim(w))
    check(end.victim.ask("become", USER)["errno"] == 0, "it is an ordinary user now")
    _gets_nothing(end, slot, ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"],
                  "another process of that user")


# ---- frames in another's name ----
def _v4(ip):
    return (bytes(10) + b"\xff\xff" + socket.inet_aton(ip)).hex()


def _local_pair(w, kind="rc", **env):
    """Two processes of one host, connected, going by shared memory both ways."""
    a, b = End(_victim(w, **env), kind), End(_victim(w, **env), kind)
    a.connect(A, b)
    b.connect(A, a)
    for x, y in ((a, b), (b, a)):
        check(x.post("w", y, 64, 0) == 0 and x.wait() == 0 and x.count("local") == 1, f"{kind}: by shared memory")
    return a, b


def _frames(to, kind):
    """WRITE and SEND with every number right, at the PSN that is expected and at others."""
    service, frames = UC if kind == "uc" else 0, []
    for psn in range(to.psn_in - 2, to.psn_in + 6):
        frames.append(((bth(WRITE_ONLY | service, to.qpn, psn) + reth(to.addr + 128, to.rkey, 16)).hex(), (b"!" * 16).hex()))
        frames.append((bth(SEND_ONLY | service, to.qpn, psn).hex(), (b"!" * 16).hex()))
    return frames


def _frames_are_refused(w, kind):
    a, b = _local_pair(w, kind)
    check(a.victim.ask("recv", a.ep, 256, 64)["errno"] == 0, "a receive is posted")
    slots = a.victim.counters().slot, b.victim.counters().slot
    for claim in (slots[1], slots[0], 0, 510, 511, 1 << 31):
        before = a.count("wrong_peer")
        task = dict(slot=slots[0], claim=claim, sgid=_v4(A), dgid=_v4(A), ifindex=socket.if_nametoindex("ab"),
                    frames=_frames(a, kind))
        i = _Intruder("write", task)
        until(lambda: a.count("wrong_peer") - before == len(task["frames"]) or a.touched(128, 384),
              f"{kind}: frames of one that says it is slot {claim}")
        check(a.touched(128, 384) == 0, f"{kind}: in the name of slot {claim}: {len(task['frames'])} frames, none executed")
        i.end()
    check(a.victim.ask("poll", a.ep)["status"] == -1 and a.state() == RTS, f"{kind}: nothing was received")
    check(b.post("s", a, 64) == 0 and b.wait() == 0 and a.wait() == 0, f"{kind}: the peer's own message is")


def frames_in_anothers_name_to_rc(w):
    """a ring of one's own, full of frames that say they are the peer's"""
    _frames_are_refused(w, "rc")


def frames_in_anothers_name_to_uc(w):
    """the same for unreliable connections, which take any PSN"""
    _frames_are_refused(w, "uc")


# ---- one that is connected to ----
class _Lure:
    """What the victim connects to: a queue pair of a process that is none of ours."""

    rkey, psn_out = 0x1234567, 7

    def __init__(self, slot):
        self.slot, self.qpn, self.addr = slot, slot << 15 | 5, 0


def peer_names_a_file_that_it_does_not_have(w):
    """it exports memory of its own, and says that it lies in a file that only the victim has open"""
    victim, path = _victim(w), w.tmp + "/precious"
    with open(path, "wb") as f:
        f.write(b"mine" * 1024)
    check(victim.ask("open", path)["errno"] == 0, "the victim has a file open")
    first, second = End(victim), End(victim)
    lure = _Lure(400 if victim.counters().slot != 400 else 401)
    i = _Intruder("lure", dict(slot=lure.slot, qpn=lure.qpn, peer_qpn=second.qpn, peer_psn=second.psn_out, gid=_v4(A),
                               rkey=lure.rkey, dev=os.stat(path).st_dev, inode=os.stat(path).st_ino))
    lure.addr = i.said["addr"]
    first.connect(A, lure)
    check(i.hear()["exported"] == 1, "it is let into the peer's memory, and sees what that exports")
    second.connect(A, lure)
    for _ in range(4):
        check(second.post("w", lure, 64) == 0 and second.wait() == 0, "it writes there by itself")
    with open(path, "rb") as f:
        check(f.read() == b"mine" * 1024, "nothing of that is in the file")
    check(second.post("r", lure, 64, 128) == 0 and second.wait() == 0 and second.touched(128, 64) == 0,
          "and what it reads is what it wrote")
    victim.kill()
    check(i.hear()["written"] == 64, "all of it went to the peer's own memory")
    i.end()


def _clone_as(pid):
    """A copy of this process that has this number, and does nothing; False: the kernel does not let us."""
    number = ctypes.c_int(pid)
    args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(number), 1, 0)
    got = libc.syscall(435, args, ctypes.sizeof(args))
    if got == 0:
        while True:
            signal.pause()
    return got == pid


def who_listened_is_gone(w):
    """a child of it answers; its number belongs to another process, whose memory the answer names as the proof"""
    _need_root()
    secret = ctypes.create_string_buffer(b"another's secret" * 2, 32)
    victim = _victim(w)
    first = End(victim)
    lure = _Lure(400 if victim.counters().slot != 400 else 401)
    i = _Intruder("lure", dict(slot=lure.slot, qpn=lure.qpn, leaves=True, at=ctypes.addressof(secret), dev=0, inode=0,
                               peer_qpn=first.qpn, peer_psn=first.psn_out, gid=_v4(A), rkey=lure.rkey))
    i.process.wait()
    if not _clone_as(i.process.pid):
        skip("no process with a number of our choice")
    try:
        first.connect(A, lure)
        until(lambda: victim.counters().get("qps_local") or End(victim).connect(A, lure), "it goes by shared memory")
        victim.kill()
        said = i.hear()
        check(not said.get("exported") and said["proof"] is None, "nothing of the other process is told")
    finally:
        os.kill(i.process.pid, signal.SIGKILL)
        os.waitpid(i.process.pid, 0)
        i.process.stdin.close()


# ---- one that never ends what it does ----
def peer_acts_for_ever(w):
    """it may, and has proved it; then it says that it is in the middle of something, on five connections"""
    a, b = _local_pair(w)
    doing = {"ibv_dereg_mr": ("dereg", 0), "ibv_modify_qp to ERR": ("error", a.ep), "ibv_destroy_qp": ("drop", a.ep)}
    check(a.victim.ask("mr", a.ep, 7, 0, 65536)["mr"] == 0, "a region")
    for what, words in doing.items():
        i = _Intruder("act", {"slot": a.victim.counters().slot, "pid": a.victim.pid, "times": 5})
        check(i.said["acting"] == 5, "it acts in the victim's memory")
        check(a.victim.ask(*words).get("errno", 0) == 0, f"{what} ends")
        took = a.victim.ask("took")
        check(took["cpu"] < 100000, f"{what}: {took['us'] / 1000:.1f} ms, of which {took['cpu'] / 1000:.1f} ms computing")
        check(took["us"] < 1000000, f"{what}: it waited for all of them together")
        i.end()
    check(b.state() == RTS, "the true peer knows nothing of it")


# ---- one that could not fetch once ----
def message_cannot_be_fetched_once(w):
    """long messages go by reference; after one that the peer could not fetch they do not go by packets for ever"""
    a, b = End(_victim(w)), End(_victim(w))
    a.connect(A, b, timeout=18)
    b.connect(A, a, timeout=18)
    length = 49152

    def packets(after=lambda: None):
        before = a.count("tx_packets")
        if b.victim.ask("recv", b.ep, 0, length)["errno"] or a.post("s", b, length) or after() or a.wait() or b.wait():
            raise Failure("a message was lost")
        return a.count("tx_packets") - before

    def show_again():
        until(lambda: a.count("naks_received"), "the peer says so")
        return a.victim.ask("hide", a.ep, 0)["errno"]

    check(packets() == 1, "a message goes by reference")
    check(a.victim.ask("hide", a.ep, 1)["errno"] == 0 and packets(show_again) > 1, "one that cannot be fetched goes by packets")
    check(packets() > 1, "so does the next")
    sent = [packets() for _ in range(1100)]
    check(sent[-1] == 1, f"{sum(n > 1 for n in sent)} later they go by reference again")


# ---- packets ----
def _inject(src, frames, count=20):
    """As another user of this host, from an address of this host, whichever it likes."""
    subprocess.run(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", PYTHON,
                    os.path.join(HERE, "inject.py"), src, A, str(count), *frames], check=True)


def _packets_are_refused(w, kind):
    _need_users()
    a, b = _local_pair(w, kind)
    service = UC if kind == "uc" else 0
    check(a.victim.ask("recv", a.ep, 256, 64)["errno"] == 0, "a receive is posted")
    frames = [(bth(WRITE_ONLY | service, a.qpn, a.psn_in + i) + reth(a.addr + 128, a.rkey, 16) + b"!" * 16).hex() for i in range(4)]
    frames += [(bth(SEND_ONLY | service, a.qpn, a.psn_in + i) + b"!" * 16).hex() for i in range(4)]
    for src in (A, "127.0.0.1", "10.78.0.1"):
        before = a.count("wrong_peer")
        _inject(src, frames)
        until(lambda: a.count("wrong_peer") - before == 20 * len(frames) or a.touched(128, 384), f"{kind}: from {src}")
        check(a.touched(128, 384) == 0, f"{kind}: {20 * len(frames)} packets from {src}: none executed, all counted as of the wrong peer")
    check(a.victim.ask("poll", a.ep)["status"] == -1 and a.state() == RTS, f"{kind}: nothing was received")
    check(b.post("s", a, 64) == 0 and b.wait() == 0 and a.wait() == 0, f"{kind}: the peer's own message is")
    return a, b, frames


def packets_to_rc_that_goes_by_memory(w):
    """another user of the host knows every number of a connection that goes by shared memory"""
    a, b, _ = _packets_are_refused(w, "rc")
    a.works_with(b, "the connection is unharmed")
    _without_shared_memory(w, "rc")


def packets_to_uc_that_goes_by_memory(w):
    """the same for an unreliable one; when the peer is gone, it is as open as one that goes by packets"""
    a, b, frames = _packets_are_refused(w, "uc")
    _without_shared_memory(w, "uc")
    b.victim.kill()
    until(lambda: _inject(A, frames[:1], 1) or a.touched(128, 16) == 16, "packets are heard again when the peer is gone")
    check(True, "CANNOT HOLD: nobody is there whose ring it could be, and a packet is believed by its address")


def _without_shared_memory(w, kind):
    """One end has it switched off: both directions go by packets, whatever the other one would like."""
    a, b = End(_victim(w), kind), End(w.victim_a(), kind)
    a.connect(A, b)
    b.connect(A, a)
    for x, y in ((a, b), (b, a)):
        for _ in range(20):
            _message(x, y)
        check(x.count("local") == 0 and y.count("wrong_peer") == 0, f"{kind}, one end without shared memory: all packets are heard")


def _message(x, y):
    if y.victim.ask("recv", y.ep, 0, 64)["errno"] or x.post("s", y, 64) or x.wait() or y.wait():
        raise Failure("a message was lost")
