#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tests/run says of skips, and when they are failures: over a small suite made here."""
import os
import pathlib
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().with_name("run")
CMOCKA = r"printf 'SKIP  no cake\n[  SKIPPED ] eats_cake\n[  SKIPPED ] says_nothing\n[  PASSED  ] 1 test(s).\n[  SKIPPED ] 2 test(s), listed below:\n[  SKIPPED ] eats_cake\n'"
LEAVES = "echo SKIP  no such machine; exit 77"
PART = "echo 'SKIP  part: not root'"


def suite(folder, **entries):
    words = ""
    for name, script in entries.items():
        words += f'add_test({name} "sh" "-c" [==[{script}]==])\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n'
    pathlib.Path(folder, "CTestTestfile.cmake").write_text(words)


def run(folder, listed="", ci="1"):
    allow = pathlib.Path(folder, "allow.txt")
    allow.write_text(listed)
    env = {k: v for k, v in os.environ.items() if k != "CI"}
    done = subprocess.run([RUN, folder, "--allow", allow], env={**env, **({"CI": ci} if ci else {})}, capture_output=True,
                          text=True, check=False)
    return done.returncode == 0, done.stdout


class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=True)

    def test_all_pass(self):
        suite(self.folder, a="true", b="true")
        passed, says = run(self.folder)
        self.assertTrue(passed)
        self.assertIn("2 entries: 2 passed, 0 failed, 0 skipped; inside them 0 cases skipped", says)

    def test_a_failure_is_one(self):
        suite(self.folder, a="true", b="false")
        passed, says = run(self.folder, ci="")
        self.assertFalse(passed)
        self.assertIn("2 entries: 1 passed, 1 failed, 0 skipped", says)

    def test_what_cannot_be_started_has_failed(self):
        pathlib.Path(self.folder, "CTestTestfile.cmake").write_text('add_test(a "/nowhere/a")\n')
        passed, says = run(self.folder, ci="")
        self.assertFalse(passed)
        self.assertIn("1 entries: 0 passed, 1 failed, 0 skipped", says)

    def test_every_skip_is_told(self):
        suite(self.folder, a=CMOCKA, b=LEAVES, c=PART)
        pathlib.Path(self.folder, "tests").mkdir()
        pathlib.Path(self.folder, "tests", "omitted.txt").write_text("wire.dissect tshark not found\n")
        passed, says = run(self.folder, ci="")
        self.assertTrue(passed)
        self.assertIn("4 entries: 2 passed, 0 failed, 2 skipped; inside them 3 cases skipped", says)
        for line in ("a:eats_cake: no cake", "a:says_nothing: does not say why", "b: no such machine", "c:part: not root",
                     "wire.dissect: tshark not found"):
            self.assertIn(f"  skipped: {line}\n", says)

    def test_with_ci_each_must_be_listed(self):
        lines = ["a:eats_cake no cake\n", "a:says_nothing of our own\n", "b no such machine\n", "c:* not root\n"]
        suite(self.folder, a=CMOCKA, b=LEAVES, c=PART)
        self.assertTrue(run(self.folder, "".join(lines))[0])
        for i in range(len(lines)):
            self.assertFalse(run(self.folder, "".join(lines[:i] + lines[i + 1:]))[0], lines[i])

    def test_a_list_does_not_cover_another_reason(self):
        suite(self.folder, b=LEAVES)
        self.assertFalse(run(self.folder, "b no time\n")[0])

    def test_silence_is_listed_by_name_only(self):
        suite(self.folder, a="echo '[  SKIPPED ] says_nothing'")
        self.assertFalse(run(self.folder, "a:* of our own\n")[0])
        self.assertTrue(run(self.folder, "*:says_nothing of our own\n")[0])


if __name__ == "__main__":
    unittest.main()
