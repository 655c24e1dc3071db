# SPDX-License-Identifier: MIT
"""A fabric beside Debian's ibsim: the same OpenSM and ibnetdiscover bring up and discover the same subnet. ibsim moves management
datagrams only, so it is what that costs at least."""
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time

import pair
import worlds
from question import OURS, RIVAL, Field, Line, Question

SIZES = [16, 24]  # k of fat-tree:k: 320 switches and 1,024 hosts, 720 and 3,456
NAME = f"bench-{os.getpid()}"
LIMIT = 120  # seconds for one program


class Failed(Exception):
    """A program did not do what is measured."""


class Place:
    """A directory for the files of a measurement, in a world."""

    def __init__(self, world, directory):
        self.world, self.directory = world, directory
        self.env = os.environ | {"OSM_TMP_DIR": directory, "OSM_CACHE_DIR": directory, "ANYRDMA_DIR": directory,
                                 "PATH": os.environ["PATH"] + ":/usr/sbin"}

    def file(self, name):
        return os.path.join(self.directory, name)

    def run(self, *command):
        done = subprocess.run([*self.world.prefix[0], *command], env=self.env, cwd=self.directory, capture_output=True, text=True,
                              timeout=LIMIT)
        if done.returncode:
            raise Failed(command)
        return done.stdout

    def timed(self, *command):
        start = time.monotonic()
        out = self.run(*command)
        return time.monotonic() - start, out

    def figures(self, process, prefix, nodes):
        """OpenSM and ibnetdiscover, behind the prefix, over a subnet of that many nodes which the process makes."""
        since, used, log = pair.MachineTimes(), cpu_of(process), self.file("log")
        opensm, _ = self.timed(*prefix, "opensm", "-o", "-e", "-f", log)
        discover, found = self.timed(*prefix, "ibnetdiscover")
        with open(log) as f:
            if "SUBNET UP" not in f.read() or len(re.findall("^(?:Switch|Ca)\t", found, re.M)) != nodes:
                raise Failed(prefix)
        with open(f"/proc/{process}/status") as f:
            memory = int(re.search(r"VmHWM:\s+(\d+)", f.read())[1])
        noise = pair.Outcome(True, found, "", cpu_of(process) - used, since).noise
        return {"opensm_s": opensm, "discover_s": discover, "mib": memory / 1024, "noise": noise}


def cpu_of(process):
    """Seconds that a process and all our children so far have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return pair.cpu_of(process) + children.ru_utime + children.ru_stime


def up(place, tool, k):
    """Its description, the number of its nodes, and its process."""
    place.run(tool, "fabric", "up", "--quiet", "--sm=off", "--name", NAME, f"fat-tree:{k}")
    net = place.run(tool, "fabric", "topology", "--name", NAME)
    process = re.search(r"process (\d+)", place.run(tool, "fabric", "status", "--name", NAME))[1]
    return net, len(re.findall(r"^(?:Switch|Ca)\s", net, re.M)), process


def ours(programs, place, k):
    try:
        _, nodes, process = up(place, programs.tool, k)
        return place.figures(process, ["env", f"ANYRDMA_FABRIC={NAME}", programs.tool, "run", "--host", "node1"], nodes)
    finally:
        place.run(programs.tool, "fabric", "down", "--name", NAME)


def ibsim(programs, place, k):
    net, nodes, _ = up(place, programs.tool, k)
    place.run(programs.tool, "fabric", "down", "--name", NAME)
    with open(place.file("net"), "w") as f:
        f.write("".join(line for line in net.splitlines(True) if not line.startswith("@")))
    host = re.search(r'^Ca\s.*"(H-\w+)".*"node1"', net, re.M)[1]
    command = [*place.world.prefix[0], "ibsim", "-N", "8192", "-S", "1024", "-P", "40000", "-s", place.file("net")]
    with open(place.file("ibsim"), "w") as out, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out) as sim:
        try:
            wait_for_console(place)
            return place.figures(sim.pid, ["env", f"SIM_HOST={host}", "ibsim-run"], nodes)
        finally:
            sim.kill()


def wait_for_console(place):
    """ibsim has read its file when it prompts."""
    def prompts():
        with open(place.file("ibsim")) as f:
            return "sim>" in f.read()

    pair.wait_until(prompts, 20)
    if not prompts():
        raise Failed("ibsim")


def measure(contender):
    def once(programs, world, k):
        with tempfile.TemporaryDirectory(prefix="anyrdma-bench-", dir="/dev/shm") as directory:
            try:
                return contender(programs, Place(world, directory), k)
            except (Failed, OSError, subprocess.TimeoutExpired):
                return None

    return once


def questions():
    """None where there is nobody to compare with."""
    if any(not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") for program in ("ibsim", "opensm", "ibnetdiscover")):
        return []
    return [Question(
        "fabric", "A fabric beside ibsim", "one run of OpenSM, and ibnetdiscover behind it, over fat-tree:16 (320 switches, 1,024 hosts) and "
        "fat-tree:24 (720, 3,456), from the start of the program to its end; the most memory that anyrdma-fabricd, or ibsim, had until then",
        [Line("ibsim", RIVAL, measure(ibsim), SIZES), Line("anyrdma", OURS, measure(ours), SIZES)],
        [Field("opensm_s", "OpenSM brings up fat-tree:k", "s", log=False, name="opensm"),
         Field("discover_s", "ibnetdiscover of fat-tree:k", "s", log=False, name="discover"),
         Field("mib", "Memory of fat-tree:k", "MiB", log=False, name="memory")],
        x_label="k of fat-tree:k", rival="ibsim", worlds=(worlds.LOOPBACK,))]
