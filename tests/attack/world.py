# SPDX-License-Identifier: MIT
"""Three hosts: A, which is attacked, B, its peer, and C, the attacker.

            10.77.0.1   10.77.0.2
    C ------- A ----------- B
   10.78.0.2  10.78.0.1

Each is a network namespace of this process's own making, so no packet leaves it. C may also send in the name of
B: it has B's address on its own interface, and A does not look by which way a packet comes (no reverse path filter).
"""
import ctypes
import glob
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

import counters  # noqa: E402
from packet import PORT, icrc  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("ANYRDMA_BUILD", os.path.join(ROOT, "build"))
PATIENCE = 40 * (4 if os.environ.get("SANITIZED") else 1)
PATIENT = 18  # the timeout of RC that a peer gets who may have to wait for a CPU: 1.07 s, eight times
A, B, C, A_BY_C = "10.77.0.1", "10.77.0.2", "10.78.0.2", "10.78.0.1"
MAC_A, MAC_C = "02:00:00:00:00:01", "02:00:00:00:00:03"

RTS, ERR = 3, 6  # QP states
SUCCESS, REM_ACCESS_ERR, RETRY_EXC_ERR, NOTHING = 0, 10, 12, -1  # completions

libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """What must hold does not."""


def check(holds, what):
    """One line per thing that must hold."""
    if not holds:
        raise Failure(what)
    print("ok    " + what, flush=True)


def tell(what):
    print("      " + what, flush=True)


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failure("waited in vain: " + what)
        time.sleep(0.002)


def skip(why):
    print("SKIP  " + why)
    sys.exit(77)


def skip_part(why):
    """The rest of the case says something by itself."""
    print("SKIP  part: " + why, flush=True)


def own_network():
    """Runs the program again in a network namespace of its own: plainly as root, else in a user namespace."""
    here = os.readlink("/proc/self/ns/net")
    if os.environ.get("LEFT_NETWORK", here) != here:
        return
    for how in ("-n", "-Urn"):
        if subprocess.run(["unshare", how, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            os.environ["LEFT_NETWORK"] = here
            os.execvp("unshare", ["unshare", how, "--", sys.executable] + sys.argv)
    skip("needs root or user namespaces to make network namespaces")


def sh(command, host=None):
    inside = ["nsenter", "-t", str(host), "-n", "--"] if host else []
    subprocess.run(inside + ["sh", "-ec", command], check=True)


# ---- counters ----
class Counters(counters.Counters):
    """The counters of a victim."""

    def __init__(self, run, pid):
        records = (r for path in glob.glob(f"{run}/net-*/processes-*") for r in counters.records_of(path))
        super().__init__(*next(r for r in records if r[1] == pid))

    def offset(self, name, qpn=None):
        at = super().offset(name, qpn)
        if at is None:
            raise Failure(f"no counters for QP {qpn:#x}")
        return at

    def get(self, name, qpn=None):
        return self.read(self.offset(name, qpn))


# ---- programs ----
class Victim:
    """A running victim.c. Its answers are dictionaries of numbers."""

    def __init__(self, world, host, device, stderr=None, identity=(), **env):
        inside = ["nsenter", "-t", str(host), "-n", "--"] if host else []
        environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/lib/anyrdma", VERBS_DEVICE=device,
                           ANYRDMA_DIR=world.run, ANYRDMA_LOCAL="off", VERBS_DEADLINE=str(PATIENCE))
        environment.update(env)
        self.run = environment["ANYRDMA_DIR"]
        # No descriptor buffering: what it says is read by select().
        self.process = subprocess.Popen(
            inside + ["setpriv", "--pdeathsig", "KILL", *identity, BUILD + "/tests/attack/attack_victim"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment, bufsize=0)
        self.world, self.busy = world, False
        world.victims.append(self)
        self.pid = self.hear()["pid"]

    def hear(self):
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                raise Failure("a victim does not answer")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failure("a victim died")
            text += more
        return {k: int(v) for k, v in (w.split("=") for w in text.decode().split())}

    def tell(self, *words):
        os.write(self.process.stdin.fileno(), (" ".join(str(w) for w in words) + "\n").encode())

    def ask(self, *words):
        self.tell(*words)
        return self.hear()

    def counters(self):
        return Counters(self.run, self.pid)

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: open(f"/proc/{self.pid}/stat", encoding="ascii").read().rsplit(") ", 1)[1][0] == "T", "stop")

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()


class End:
    """One end of a connection: the victim and what its endpoint is called and known by."""

    def __init__(self, victim, kind="rc", access=0, share=0):
        self.victim = victim
        said = victim.ask("ep", kind, access, share)
        self.ep, self.qpn, self.rkey, self.addr = said["ep"], said["qpn"], said["rkey"], said["addr"]
        self.psn_out = int.from_bytes(os.urandom(3), "big")
        self.psn_in = None

    def connect(self, ip, peer, timeout=PATIENT, retry=7):
        self.psn_in = peer.psn_out
        self.victim.ask("connect", self.ep, ip, peer.qpn, self.psn_out, self.psn_in, timeout, retry)

    def state(self):
        return self.victim.ask("state", self.ep)["state"]

    def post(self, what, peer, length=64, off=0, rkey=None, addr=None):
        key = peer.rkey if rkey is None else rkey
        return self.victim.ask("post", what, self.ep, off, length, peer.addr if addr is None else addr, key)["errno"]

    def wait(self):
        return self.victim.ask("wait", self.ep)["status"]

    def touched(self, off=0, length=65536):
        return self.victim.ask("touched", self.ep, off, length)["bytes"]

    def count(self, name):
        return self.victim.counters().get(name, self.qpn)

    def heard_out(self, peer):
        """Each end has seen all that the other sent, probes and the answers to them too; and nothing else."""
        until(lambda: self.count("rx_packets") == peer.count("tx_packets") and
              peer.count("rx_packets") == self.count("tx_packets"), "the ends have seen what the other sent, and no more")

    def stream(self, peer):
        """Begins checked traffic to the peer."""
        self.victim.tell("stream", self.ep, peer.addr, peer.rkey)

    def streamed(self, what):
        """Ends it, and nothing must have gone wrong."""
        self.victim.tell("")
        r = self.victim.hear()
        check(r["status"] == SUCCESS and r["wrong"] == 0,
              f"{what}: {r['rounds']} rounds of WRITE and READ back, status {r['status']}, {r['wrong']} wrong")
        return r["rounds"]

    def works_with(self, peer, what):
        """The connection is unharmed: still RTS, and data goes both ways and is right."""
        status = self.post("w", peer, 4096) or self.wait() or self.post("r", peer, 4096) or self.wait()
        check(status == SUCCESS and self.state() == RTS and peer.state() == RTS, what)


# ---- the attacker ----
class Forger:
    """Packets from C, in C's name or another's."""

    def __init__(self, world, name=C):
        self.world, self.name, self.sent = world, name, 0
        self.patient = True  # waits for the target now and then, so that it judges every packet
        with world.inside(world.host_c):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER: PROBE
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((name, PORT))
            self.socket.setblocking(False)

    def send(self, frame, to=A, good=True):
        check_bytes = icrc(self.name, to, frame)
        self.raw(frame + (check_bytes if good else bytes(b ^ 0x55 for b in check_bytes)), to)

    def raw(self, data, to=A):
        self.socket.setblocking(True)
        self.socket.sendto(data, (to, PORT))
        self.socket.setblocking(False)
        self.sent += 1
        if self.patient and self.sent % 64 == 0:
            self.world.settle()

    def answers(self):
        got = []
        while True:
            try:
                got.append(self.socket.recv(65536))
            except BlockingIOError:
                return got

    def close(self):
        self.socket.close()

    def sweep(self, victim, opcode, qpn, psn, count, vary, counters):
        """The whole space, by sweep.c. `counters`: (name, QPN or None) of what each packet adds one to."""
        self.close()
        known = victim.counters()
        before = victim.ask("cpu")["us"] if not victim.busy else 0
        out = subprocess.run(
            ["nsenter", "-t", str(self.world.host_c), "-n", "--", BUILD + "/tests/attack/attack_sweep", self.name, A,
             str(opcode), str(qpn), str(psn), str(count), vary, str(known.segment)] +
            [str(known.offset(*c)) for c in counters], check=True, stdout=subprocess.PIPE).stdout.decode()
        r = {k: int(v) for k, v in (w.split("=") for w in out.split())}
        r["cpu"] = victim.ask("cpu")["us"] - before if not victim.busy else 0
        tell(f"{r['sent']} packets in {r['ms'] / 1000:.1f} s, {r['judged']} judged" +
             (f", {r['cpu'] / max(r['sent'], 1):.2f} us of the victim's CPU each" if r["cpu"] else ""))
        return r


class Inside:
    """The calling thread is in another network namespace meanwhile; sockets stay where they were made."""

    def __init__(self, pid):
        self.there, self.home = f"/proc/{pid}/ns/net", os.open("/proc/self/ns/net", os.O_RDONLY)

    def enter(self, fd):
        if libc.setns(fd, 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")

    def __enter__(self):
        fd = os.open(self.there, os.O_RDONLY)
        self.enter(fd)
        os.close(fd)

    def __exit__(self, *unused):
        self.enter(self.home)
        os.close(self.home)


def no_ipv6(interface):
    """The shell's words for it; a kernel may have none."""
    return f"! test -e /proc/sys/net/ipv6 || echo 1 >/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"


def needs_settings():
    try:
        with open("/proc/sys/net/ipv4/conf/all/rp_filter", "w", encoding="ascii") as f:
            f.write("0")
    except OSError as e:
        skip(f"needs to write to /proc/sys: {e.strerror}")


class World:
    def __init__(self):
        needs_settings()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files by the hundred come and go
        self.temp = tempfile.TemporaryDirectory(prefix="anyrdma-attack.", dir=memory)
        self.tmp = self.temp.name
        self.run = os.path.join(self.tmp, "run")
        os.mkdir(self.run, 0o700)
        self.sleepers, self.victims = [], []
        self.host_b, self.host_c = self.host(), self.host()
        sh(f"""
            for f in all default; do echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter; done
            {no_ipv6("default")}
            ip link set lo up
            ip link add ab mtu 1500 type veth peer name ba netns {self.host_b}
            ip link add ac mtu 1500 address {MAC_A} type veth peer name ca address {MAC_C} netns {self.host_c}
            ip addr add {A}/24 dev ab; ip addr add {A_BY_C}/24 dev ac
            for d in ab ac; do echo 0 >/proc/sys/net/ipv4/conf/$d/rp_filter; ip link set $d up; done""")
        sh(f"""{no_ipv6("ba")}
            ip link set lo up; ip addr add {B}/24 dev ba; ip link set ba up""", self.host_b)
        # B's address on C's side is C's to send from; nobody may ask for it there.
        sh(f"""{no_ipv6("ca")}
            echo 8 >/proc/sys/net/ipv4/conf/ca/arp_ignore
            ip link set lo up; ip addr add {C}/24 dev ca; ip link set ca up; ip addr add {B}/32 dev ca
            ip route add {A}/32 dev ca
            ip neigh replace {A} lladdr {MAC_A} dev ca nud permanent
            ip neigh replace {A_BY_C} lladdr {MAC_A} dev ca nud permanent""", self.host_c)
        sh(f"ip neigh replace {C} lladdr {MAC_C} dev ac nud permanent")
        sh("until ip link show ab | grep -q 'state UP' && ip link show ac | grep -q 'state UP'; do sleep 0.02; done")

    def host(self):
        """A process that does nothing but be in a network namespace of its own."""
        p = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sleep", "infinity"])
        self.sleepers.append(p)
        mine = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{p.pid}/ns/net") != mine, "a namespace")
        return p.pid

    def inside(self, host):
        return Inside(host)

    def victim_a(self, **env):
        return Victim(self, None, "roce_ab", **env)

    def victim_b(self, **env):
        return Victim(self, self.host_b, "roce_ba", **env)

    def pair(self, a=None, b=None, kind="rc", timeout=PATIENT, retry=7):
        """A connection between A and B; both ends are known to the test, not to the attacker."""
        a, b = End(a or self.victim_a(), kind), End(b or self.victim_b(), kind)
        a.connect(B, b, timeout, retry)
        b.connect(A, a, timeout, retry)
        return a, b

    def settle(self):
        """Waits until A has taken every packet off its socket."""
        until(lambda: all(line.split()[4].endswith(":00000000") for line in open("/proc/net/udp", encoding="ascii")
                          if f":{PORT:04X} " in line), "A takes its packets")

    def received_by_c(self):
        """Packets that came in by C's interface, whatever they are."""
        with open(f"/proc/{self.host_c}/net/dev", encoding="ascii") as f:
            return int(re.search(r"ca:\s*\d+\s+(\d+)", f.read()).group(1))

    def leave(self):
        for p in self.sleepers + [v.process for v in self.victims]:
            p.kill()
            p.wait()
        self.temp.cleanup()
