#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""build.py SOURCE BUILD SANITIZERS [CTEST-OPTION...]: builds with these sanitizers, in what time the tests beside it leave.

Given options of ctest, only what the entries that they choose run: the product and their suites' programs.
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from ctest_entries import entries  # noqa: E402


def targets_of(source, entry):
    """A suite has a folder with the name of its label; of unit tests each has a program of its own name."""
    suites = [label for label in entry.labels if (source / "tests" / label / "CMakeLists.txt").exists()]
    return [f"tests/{suite}/all" for suite in suites] or ["test_" + entry.name.replace(".", "_")]


def step(log, *command):
    """Runs it, all it says into the log; what it said last is shown when it fails."""
    if subprocess.run(command, stdout=log, stderr=log).returncode == 0:
        return
    log.seek(0)
    sys.exit("".join(log.readlines()[-40:]))


def main():
    source, build, sanitizers, options = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    pathlib.Path(build).mkdir(parents=True, exist_ok=True)
    with open(f"{build}/build.log", "w+") as log:
        step(log, "cmake", "-G", "Ninja", "-S", str(source), "-B", build, f"-DANYRDMA_SANITIZE={sanitizers}", "-DANYRDMA_WERROR=ON")
        targets = {target for entry in entries(build, *options) for target in targets_of(source, entry)} if options else {"all"}
        step(log, "nice", "cmake", "--build", build, "--target", "src/all", *sorted(targets))


main()
