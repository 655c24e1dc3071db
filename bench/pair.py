# SPDX-License-Identifier: MIT
"""Runs a server and, once it listens, a client; says what both printed and what CPU time it took."""
import os
import signal
import subprocess
import tempfile
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
STATE_OF = {"tcp": "0A", "udp": "07"}  # listening, unconnected


class Outcome:
    """What a pair left: the client's and the server's output, and CPU seconds.

    cpu      user and system time of both processes with all their threads
    softirq  interrupt time of the whole machine meanwhile, which belongs to no process
    steal    time in which the machine itself did not run: not silence
    """

    def __init__(self, ok, out, server_out, cpu, softirq, steal):
        self.ok, self.out, self.server_out = ok, out, server_out
        self.cpu, self.softirq, self.steal = cpu, softirq, steal


def machine_times():
    fields = open("/proc/stat").readline().split()[1:]
    irq, softirq, steal = (int(x) / TICK for x in fields[5:8])
    return irq + softirq, steal


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
        _, status, usage = os.wait4(self.p.pid, 0)
        self.p.returncode = os.waitstatus_to_exitcode(status)
        self.timer.cancel()
        self.out.seek(0)
        return self.p.returncode, self.out.read(), usage.ru_utime + usage.ru_stime


def run(world, server, client, port, proto="tcp", limit=60):
    """The server ends by itself when the client has (and is told to, a moment later, if not)."""
    s = Process(world.prefix[0] + server, limit + 10)
    end = time.monotonic() + 10
    while s.alive() and not listens(s.p.pid, proto, port) and time.monotonic() < end:
        time.sleep(0.01)
    softirq, steal = machine_times()
    status, out, cpu = Process(world.prefix[1] + client, limit).finish()
    softirq, steal = (b - a for a, b in zip((softirq, steal), machine_times()))
    end = time.monotonic() + 1
    while s.alive() and time.monotonic() < end and status == 0 and server[0] != "sockperf":
        time.sleep(0.01)
    s.signal(signal.SIGTERM)
    _, server_out, server_cpu = s.finish()
    return Outcome(status == 0, out, server_out, cpu + server_cpu, softirq, steal)


def run_alone(world, command, end=0, limit=60):
    """The output of a program that needs no other end; None when it failed."""
    status, out, _ = Process(world.prefix[end] + command, limit).finish()
    return out if status == 0 else None
