# SPDX-License-Identifier: MIT
"""What a reader must know of the machine to believe a figure."""
import datetime
import glob
import os
import platform
import re
import subprocess


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def cpu_model():
    with open("/proc/cpuinfo") as f:
        m = re.search(r"^model name\s*:\s*(.*)$", f.read(), re.M)
    return m[1] if m else platform.machine()


def mitigations():
    """The vulnerabilities that cost something here."""
    found = {}
    for path in sorted(glob.glob("/sys/devices/system/cpu/vulnerabilities/*")):
        with open(path) as f:
            text = f.read().strip()
        if text.startswith("Mitigation"):
            found[os.path.basename(path)] = text.removeprefix("Mitigation: ")
    return found


def limit(name):
    with open(f"/proc/sys/net/core/{name}") as f:
        return int(f.read())


def commit(root):
    """With a plus sign when the tree was not clean."""
    dirty = output("git", "-C", root, "status", "--porcelain", "--untracked-files=no")
    return output("git", "-C", root, "rev-parse", "--short", "HEAD") + ("+" if dirty else "")


def gather(root):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(root),
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "virtual": output("systemd-detect-virt") or "unknown",
        "mitigations": mitigations(),
        "rmem_max": limit("rmem_max"),
        "wmem_max": limit("wmem_max"),
        "load": os.getloadavg()[0],
        "iperf3": output("iperf3", "--version").split("\n")[0],
        "sockperf": output("sockperf", "--version").split("\n")[0],
        "perftest": output("dpkg-query", "-W", "-f=${Version}", "perftest"),
    }
