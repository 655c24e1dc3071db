# SPDX-License-Identifier: MIT
"""Whether the machine let us measure. Two things spoil a figure: other programs, and two cores that are far
apart for seconds (cores.c), as seen on a virtual machine, which made the floor up to three times slower. So a measurement waits for near cores, and one that was disturbed is made again, once."""
import os
import subprocess
import time

NOISE = 0.1       # CPUs that others used
BY_REF_NS = 130      # between the two clusters seen on one machine: 25 to 100, and 170 and more
PATIENCE = 4      # seconds
TRIES = 2


def disturbed(figures):
    return bool(figures) and (figures.get("noise", 0) >= NOISE or figures.get("cores_ns", 0) >= BY_REF_NS)


class Silence:
    """Cares about cores only where there are two, which both ends then use, and where they are near at times."""

    def __init__(self, cores_path, care=True):
        self.cores_path = cores_path
        self.tries = TRIES if care else 1
        self.watch = care and len(os.sched_getaffinity(0)) == 2 and min(self.sample() for _ in range(20)) < BY_REF_NS

    def sample(self):
        out = subprocess.run([self.cores_path], capture_output=True, text=True).stdout
        time.sleep(0.05)
        return int(out or 0)

    def wait(self):
        end = time.monotonic() + PATIENCE
        while self.watch and self.sample() >= BY_REF_NS and time.monotonic() < end:
            pass

    def measure(self, function):
        """The figures of one measurement, the last one when it had to be made again."""
        for _ in range(self.tries):
            self.wait()
            figures = function()
            if figures and self.watch:
                figures["cores_ns"] = self.sample()
            if not disturbed(figures):
                break
        return figures
