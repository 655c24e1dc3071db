#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""valgrind.py BUILD [-R PATTERN] [-E PATTERN] [-- OPTION...]: the unit, simulation, verbs, rdmacm and preload suites of a build under valgrind.

Asks CTest for the commands and runs each under memcheck, as many at once as there are CPUs. A suite that would
take minutes that way does less of the same. Further options go to valgrind: `-- --tool=helgrind`, for a look.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from ctest_entries import entries  # noqa: E402

LABELS = "^(unit|sim|verbs|rdmacm|preload)$"
MEMCHECK = ["--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite",
            "--trace-children=yes", "--trace-children-skip=/bin/true,*/true,*/ip", "--child-silent-after-fork=yes"]
COMMON = ["--quiet", "--error-exitcode=99", "--fair-sched=try", f"--suppressions={HERE / 'valgrind.supp'}"]

# The first that matches: other arguments, or None to leave it out.
LESS = [
    ("^sim.(random|iwarp$|iwarp_hostile$|cm$)", ["--seed", "1", "--seeds", "20"]),
    ("^sim.two.(?!ring)", None),  # as below
    ("^sim.two", ["--seed", "1", "--seeds", "5"]),
    ("^sim.hostile$", ["--seed", "1", "--seeds", "2"]),
    ("^base.guard$|^shim.path$|^verbs.*.guard$", None),  # touch what is not there, for that is what they are about
    ("^verbs.*.fork_memory$", None),  # has an allocator of its own
    ("^verbs.(default|udp)", None),  # what the kernel says of a process's memory is valgrind's there
    # It has no userfaultfd, so nothing is moved; the others are the same code but for addresses, options or the way of a frame.
    (r"^local.(share|fetch)$|^verbs.(map|copy|iwarp_crc|no_gso)|^verbs.*(memory|large)$|^verbs.iwarp.(?!rc$|errors|onesided|srq|stream)|^verbs.roce6.(?!ud|uc)|^verbs.ring.(?!rc$|reply|errors)", None),
    ("^verbs.*.errors$", ["!request_for_unmapped*"]),
    ("^wire.icrc$|^wire.pcap$|^sysfs.sysfs$|^verbs.*.huge$|^sim.recovery$", None),  # a minute of repetitions of a few lines
    ("^verbs.*.rc$", ["!*mtu_???"]),  # what takes long by its numbers, a few of each kind is left
    ("^verbs.*.rc_order$", ["!a_thousand*"]),
    ("^verbs.*.onesided$", ["two_processes_converse"]),
    ("^verbs.*.threads$", ["*create_and_destroy_at_once"]),
    ("^verbs.*.fork_locks$", ["a_child_*"]),
    ("^rdmacm.connect$", ["thousands*"]),  # without them
    ("^rdmacm.iwarp", ["s*"]),  # strangers who wait, crowds
    ("^rdmacm.killed$", None),  # half a minute of waiting for the dead
    ("^rdmacm.rsocket$", ["a_child*"]),  # likewise: leaks in a child, see below, would fail its test
]
# A child of a program with threads has lost what the threads held: leaks in it say nothing.
MORE = [("^verbs.*.(fork|windows)|^rdmacm.events$|^preload.processes$", ["--leak-check=no"])]
FIRST = "fork_locks|events|cancel|rsocket$|reply|windows"  # the longest: a core would wait for them at the end
LIMIT = 300


def chosen(build, pattern, without):
    for entry in entries(build, "-L", LABELS):
        if not re.search(pattern, entry.name) or without and re.search(without, entry.name):
            continue
        if any("python" in word or word.endswith(".sh") for word in entry.program):
            continue
        entry.args = next((args for pattern_of, args in LESS if re.search(pattern_of, entry.name)), entry.args)
        if entry.args is not None:
            yield entry


def run(entry, options):
    began, name = time.monotonic(), entry.name
    more = [o for pattern, opts in MORE if re.search(pattern, name) for o in opts]
    full = [*entry.wrapper, "valgrind", *COMMON, *options, *more, *entry.program, *entry.args]
    try:
        done = subprocess.run(full, env={**os.environ, "VERBS_DEADLINE": "120", **entry.env}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT, check=False)
        status, words = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, words = "timeout", (late.stdout or b"").decode(errors="replace")
    return name, status, words, time.monotonic() - began


def main():
    args, options = sys.argv[1:], MEMCHECK
    if "--" in args:
        at = args.index("--")
        args, options = args[:at], args[at + 1:]
    pattern, without = (args[args.index(o) + 1] if o in args else "" for o in ("-R", "-E"))
    tests = sorted(chosen(args[0], pattern, without), key=lambda e: not re.search(FIRST, e.name))
    failed = ran = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(run, e, options) for e in tests]
        for job in concurrent.futures.as_completed(jobs):
            name, status, words, took = job.result()
            ran += 1
            print(f"{name}: {'clean' if status == 0 else f'FAILED ({status})'}, {took:.1f} s", flush=True)
            if status != 0:
                failed += 1
                print(words, flush=True)
    print(f"{ran} programs, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
