# SPDX-License-Identifier: MIT
"""Worlds: where the two ends of a measurement run. Network namespaces of our own, so that nothing else is on the link."""
import os
import subprocess

LOOPBACK, MEMORY, GUEST, SIW = "loopback", "memory", "guest", "guest-siw"
LINKS = (LOOPBACK, "veth-1500", "veth-9000")  # where packets move
NAMES = (*LINKS, MEMORY, GUEST, SIW)


class Missing(Exception):
    """Why there is no such world here."""


class World:
    """A command prefix and a device for each end (server, client), and the server's address; `local`: what ANYRDMA_LOCAL says,
    None: nothing."""

    def __init__(self, name, namespaces, devices, address):
        self.name, self.namespaces, self.devices, self.address = name, namespaces, devices, address
        self.prefix = [["ip", "netns", "exec", ns] if ns else [] for ns in namespaces]
        self.local = "off"  # packets are what is measured
        self.payload = 1024 if name == "veth-1500" else 4096  # of the RoCE packets this link carries
        self.port = 21000

    def next_port(self):
        self.port += 1
        return self.port

    def alone(self):
        """The same for a program that makes both ends itself: not bound to one end's core."""
        world = World(self.name, self.namespaces, self.devices, self.address)
        world.local = self.local
        return world

    def close(self):
        for ns in set(filter(None, self.namespaces)):
            subprocess.run(["ip", "netns", "del", ns], stderr=subprocess.DEVNULL)


def made(script):
    return subprocess.run(["sh", "-ec", script], stderr=subprocess.DEVNULL).returncode == 0


def loopback(name):
    ns = f"anyrdma-bench-{os.getpid()}-{name}"
    mine = made(f"ip netns add {ns}; ip -n {ns} link set lo up")
    return World(name, [ns if mine else None] * 2, ["roce_lo"] * 2, "127.0.0.1")


def memory():
    """The loopback as it is by default, without packets; each end, ours or a rival's, stays on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Missing("needs two CPUs")
    world = loopback(MEMORY)
    world.local = None
    world.prefix = [prefix + ["taskset", "-c", str(core)] for prefix, core in zip(world.prefix, (cores[0], cores[-1]))]
    return world


def veth(name):
    a, b = (f"anyrdma-bench-{os.getpid()}-{name[5:]}{end}" for end in "ab")
    mtu = int(name[5:])
    world = World(name, [a, b], ["roce_va", "roce_vb"], "10.88.0.1")
    if made(f"""ip netns add {a}; ip netns add {b}
            ip -n {a} link add va type veth peer name vb netns {b}
            ip -n {a} link set va mtu {mtu}; ip -n {b} link set vb mtu {mtu}
            ip -n {a} addr add 10.88.0.1/24 dev va; ip -n {b} addr add 10.88.0.2/24 dev vb
            ip -n {a} link set lo up; ip -n {b} link set lo up
            ip -n {a} link set va up; ip -n {b} link set vb up"""):
        return world
    world.close()
    raise Missing("needs root to make network namespaces")


def enter(name):
    if name == MEMORY:
        return memory()
    return loopback(name) if name == LOOPBACK else veth(name)
