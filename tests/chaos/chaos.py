#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""chaos.py SOURCE BUILD [--build-only] [--seconds N] [--seed N] [-R PATTERN]: races sought over the verbs, rdmacm, preload and same-host suites.

Builds with -DANYRDMA_CHAOS=ON, in which a seed makes threads late (src/base/chaos.h), asks CTest for the commands, and
runs them in an order that is drawn, each with a seed and a network of its own, many more at once than there are CPUs, until
the time is over. A failure prints its seed and the command that replays it. The seed says where threads are late, the
scheduler the rest: it may take a few runs.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ctest_entries import entries  # noqa: E402

LABELS = "^(verbs|rdmacm|preload|sim)$"
TARGETS = ["tests/verbs/all", "tests/rdmacm/all", "tests/preload/all", "src/all", "two_test"]
ENTRIES = "^(verbs|rdmacm|preload|sim.two)[.]"
AT_ONCE = 4  # per CPU
# A packet that the kernel gives to another program, since one has just come or gone, is handed on, or dropped where there
# is no room. Where programs are late that is no accident, and a NAK that is dropped ends a request with another status.
OWN_NETWORK = str(pathlib.Path(__file__).resolve().parents[1] / "own_network")
PATIENT = {"VERBS_DEADLINE": "60"}
LIMIT = 120
# The first that matches: other arguments, or None to leave it out; all the same run when named by -R.
LESS = [
    ("^verbs[.](default|udp)[.]", None),  # what the kernel says of a process, its threads and what they cost
    ("^verbs[.]ib|^sim[.]two[.].*(fabric|hops)$", None),  # each would need a fabric of its own, whose process is late as well
    ("[.](huge|large)$|^rdmacm[.]killed$", None),  # minutes of arithmetic, or of waiting for the dead
    ("[.]stopped$", None),  # has to meet a peer in the middle of an act, where it is seldom when it is late everywhere
    ("[.]onesided$", ["!idle*"]),  # counts CPU time
    ("[.]stream$", ["!peer_is_heard*"]),  # counts posts until the helper has heard, which is late
]


def build(source, where):
    for command in (["cmake", "-G", "Ninja", "-S", source, "-B", where, "-DANYRDMA_CHAOS=ON", "-DANYRDMA_WERROR=ON"],
                    ["cmake", "--build", where, "--target", *TARGETS]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout)


def chosen(where, pattern):
    for entry in entries(where, "-L", LABELS):
        if not re.search(ENTRIES, entry.name) or not re.search(pattern, entry.name) or entry.properties.get("RUN_SERIAL"):
            continue
        if not pattern:
            entry.args = next((less for pattern_of, less in LESS if re.search(pattern_of, entry.name)), entry.args)
        if entry.args is not None:
            yield entry


def run(entry, seed, until):
    if time.monotonic() > until:
        return None
    name, command = entry.name, entry.command if entry.wrapper else [OWN_NETWORK, *entry.command]
    env = {**entry.env, **PATIENT, "ANYRDMA_CHAOS_SEED": str(seed)}
    try:
        done = subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=LIMIT, check=False)
        status, words = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, words = f"nothing after {LIMIT} s", (late.stdout or b"").decode(errors="replace")
    if status not in (0, 77):
        again = " ".join(f"{k}={shlex.quote(v)}" for k, v in env.items())
        print(f"{words}\n{name}: FAILED ({status}) with seed {seed}; again:\n{again} {shlex.join(command)}", flush=True)
    return status in (0, 77)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("source")
    args.add_argument("build", type=pathlib.Path)
    args.add_argument("--build-only", action="store_true")
    args.add_argument("--seconds", type=int, default=30)
    args.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    args.add_argument("-R", dest="pattern", default="")
    args = args.parse_args()
    build(args.source, args.build)
    if args.build_only:
        return 0
    draw, until = random.Random(args.seed), time.monotonic() + args.seconds
    tests = list(chosen(args.build, args.pattern))
    print(f"{len(tests)} entries, --seed {args.seed}", flush=True)
    ran = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE * os.cpu_count()) as pool:
        while tests and time.monotonic() < until:
            draw.shuffle(tests)
            jobs = [pool.submit(run, t, draw.randrange(1 << 31), until) for t in tests]
            ran += [r for r in (j.result() for j in jobs) if r is not None]
    print(f"{len(ran)} programs, {ran.count(False)} failed")
    return 1 if not ran or not all(ran) else 0


if __name__ == "__main__":
    sys.exit(main())
