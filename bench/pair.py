# SPDX-License-Identifier: MIT
"""Runs a server and, once it listens, a client; says what both printed and what CPU time it took."""
import glob
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
STATE_OF = {"tcp": "0A", "udp": "07"}  # listening, unconnected
CLAIMS = 16416                         # where they begin


class Outcome:
    """What a pair left: the client's and the server's output, and CPU seconds.

    cpu      user and system time of both processes with all their threads
    softirq  interrupt time of the whole machine meanwhile, as far as the kernel has not charged it to the processes
    noise    CPU time that others used meanwhile, in this machine and (stolen) beside it, per second
    """

    def __init__(self, ok, out, server_out, cpu, since):
        now = MachineTimes()
        self.ok, self.out, self.server_out, self.cpu = ok, out, server_out, cpu
        beside = max(now.busy - since.busy - cpu, 0)
        self.softirq = min(now.softirq - since.softirq, beside)
        self.noise = (beside - self.softirq + now.steal - since.steal) / (now.clock - since.clock)


class MachineTimes:
    """Seconds since the machine started, of all CPUs together."""

    def __init__(self):
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, softirq, steal = (int(x) / TICK for x in f.readline().split()[1:9])
        self.softirq, self.steal = irq + softirq, steal
        self.busy = user + nice + system + self.softirq - time.process_time()  # without our own waiting
        self.clock = time.monotonic()


def listens(pid, proto, port):
    """A socket of the namespace of that process is bound to the port."""
    for family in ("", "6"):
        try:
            rows = [line.split() for line in open(f"/proc/{pid}/net/{proto}{family}")][1:]
        except OSError:
            return False
        if any(row[1].endswith(f":{port:04X}") and row[3] == STATE_OF[proto] for row in rows):
            return True
    return False


def listens_rdma(pid, port):
    """The process has claimed the RDMA port. Claims are behind the records of processes: four words each, the port in the first,
    the process id in the last (src/host/ports_table.h)."""
    for path in glob.glob(os.path.join(os.environ.get("ANYRDMA_DIR", f"/dev/shm/anyrdma-{os.getuid()}"), "net-*", "processes-*")):
        with open(path, "rb") as f:
            words = struct.iter_unpack("=4Q", f.read()[CLAIMS:])
        if any(word[3] & 0xffffffff == pid and word[0] & 0xffff == port for word in words):
            return True
    return False


class Process:
    def __init__(self, command, limit):
        self.out = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT,
                                  start_new_session=True)
        self.timer = threading.Timer(limit, self.signal, [signal.SIGKILL])
        self.timer.start()

    def signal(self, number):
        if self.p.returncode is None:
            try:
                os.killpg(self.p.pid, number)
            except ProcessLookupError:
                pass

    def alive(self):
        """Leaves a process that has ended to finish(), which asks for its CPU time."""
        return os.waitid(os.P_PID, self.p.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def finish(self):
        """Waits; returns the exit status, the output and the CPU seconds."""
        try:
            _, status, usage = os.wait4(self.p.pid, 0)
        except BaseException:  # interrupted: leave nothing behind
            self.signal(signal.SIGKILL)
            self.timer.cancel()
            raise
        self.p.returncode = os.waitstatus_to_exitcode(status)
        self.timer.cancel()
        self.out.seek(0)
        return self.p.returncode, self.out.read(), usage.ru_utime + usage.ru_stime


def cpu_of(pid):
    """Seconds that a process has used, with all its threads."""
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / TICK


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def run(world, server, client, port, proto="tcp", limit=60, endless=False, meanwhile=lambda: None, third=None):
    """The server ends by itself when the client has, or is told to: at once if it never does, else a second later. What is to
    happen meanwhile begins with the client. third: a process that has a part in what is measured."""
    since, third_used = MachineTimes(), cpu_of(third) if third else 0
    s = Process(world.prefix[0] + server, limit + 10)
    try:
        ready = (lambda: listens_rdma(s.p.pid, port)) if proto == "rdma" else (lambda: listens(s.p.pid, proto, port))
        wait_until(lambda: ready() or not s.alive(), 10)
        c = Process(world.prefix[1] + client, limit)
        meanwhile()
        status, out, cpu = c.finish()
        if status == 0 and not endless:
            wait_until(lambda: not s.alive(), 1)
    finally:
        s.signal(signal.SIGTERM)
        _, server_out, server_cpu = s.finish()
    third_used = cpu_of(third) - third_used if third else 0
    return Outcome(status == 0, out, server_out, cpu + server_cpu + third_used, since)


def run_alone(world, command, end=0, limit=60):
    """The output of a program that needs no other end; None when it failed."""
    status, out, _ = Process((world.prefix[end] if world else []) + command, limit).finish()
    return out if status == 0 else None
