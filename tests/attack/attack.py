#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attack.py [CASE...]: runs attacks by name, or all; each in a world of its own."""
import glob
import importlib
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import world  # noqa: E402


def find_cases():
    """Every public function in cases/*.py, in the order of the files."""
    cases = {}
    for path in sorted(glob.glob(os.path.join(world.HERE, "cases", "*.py"))):
        module = importlib.import_module("cases." + os.path.basename(path)[:-3])
        for name, function in vars(module).items():
            if getattr(function, "__module__", "") == module.__name__ and not name.startswith("_"):
                cases[name] = function
    return cases


def run(name, case):
    began = time.monotonic()
    print(f"{name}: {case.__doc__}", flush=True)
    w = world.World()
    try:
        case(w)
    except world.Failure as failure:
        print(f"FAIL  {failure}")
        return False
    finally:
        w.leave()
    print(f"      {time.monotonic() - began:.1f} s")
    return True


def main():
    cases = find_cases()
    wanted = sys.argv[1:] or list(cases)
    world.own_network()
    return all([run(name, cases[name]) for name in wanted])


if __name__ == "__main__":
    sys.exit(not main())
