# SPDX-License-Identifier: MIT
"""The entries of CTest, for scripts that run them in ways of their own."""
import json
import os
import subprocess

# A script of tests/ that an entry's program may run under, and that is no part of what is tested.
WRAPPERS = {"own_network"}


class Entry:
    """An entry: name, the words before its program, the program, its arguments, CTest's properties and the environment."""

    def __init__(self, test):
        command = list(test.get("command", []))
        at = 1 if command and os.path.basename(command[0]) in WRAPPERS else 0
        self.name = test["name"]
        self.wrapper, self.program, self.args = command[:at], command[at:at + 1], command[at + 1:]
        self.properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        self.labels = self.properties.get("LABELS", [])
        self.env = dict(pair.split("=", 1) for pair in self.properties.get("ENVIRONMENT", []))

    @property
    def command(self):
        return [*self.wrapper, *self.program, *self.args]


def entries(build, *options):
    """The entries of a build that these options of ctest choose."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *options],
                            check=True, capture_output=True, text=True).stdout
    return [Entry(test) for test in json.loads(listed)["tests"]]
