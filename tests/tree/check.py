#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the source tree itself: check.py layers | spdx | format | conformance

layers  reads the #includes of src/ and fails where a folder sees one it may not see (docs/architecture.md)
spdx    every C file begins with a line that names its licence
format  clang-format has nothing to change
conformance  every test that docs/conformance.md names exists in the program of its entry

Each prints one line per breach, file:line first, and ends with status 1 if there was any.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
SKIP = 77  # CTest's SKIP_RETURN_CODE

# A folder sees itself and these. The engine alone knows both a transport and a link.
MAY_SEE = {
    "base": set(),
    "wire": {"base"},
    "memory": {"base"},
    "link": {"memory", "base", "wire"},
    "hca": {"memory", "base", "wire"},
    "ib": {"hca", "base", "wire"},
    "iwarp": {"hca", "base", "wire"},
    "local": {"hca", "memory", "base", "wire"},
    "cm": {"hca", "base", "wire"},
    "mad": {"hca", "base", "wire"},
    "rsocket": {"base"},  # and the public headers, as a program
    "front": {"rsocket", "cm", "mad", "hca", "base", "wire"},
    "tool": {"hca", "base", "wire"},
    "shim": {"base"},
    "preload": {"base"},  # and librdmacm's public headers
}
ENGINE = re.compile(r"hca/engine(\w*\.c|_streams\.h)$")
ENGINE_SEES = {"hca", "ib", "iwarp", "local", "link", "memory", "base", "wire"}
# The connection manager's core knows no adapter: the simulation and the fuzzer drive it as it is.
CM_CORE = re.compile(r"cm/(conn|core|receive|table|timers|verbs)\.[ch]$")
CM_CORE_SEES = {"cm", "base", "wire"}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SPDX = re.compile(r"^(/\*|//) SPDX-License-Identifier: \S+")


def c_files(*folders):
    """Yields every .c and .h file below the named folders, in a stable order."""
    for folder in folders:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h"))


def folder_of(path, includer):
    """The folder of src/ that an #include names, or None when it is not one of ours."""
    for base in (includer.parent, SRC):
        target = (base / path).resolve()
        if target.is_file() and SRC in target.parents:
            return target.relative_to(SRC).parts[0]
    return path.split("/")[0] if path.split("/")[0] in MAY_SEE else None


def check_layers():
    for path in c_files("src"):
        if path.name.endswith("_test.c"):
            continue
        name = path.relative_to(SRC).as_posix()
        own = name.split("/")[0]
        if own not in MAY_SEE:
            yield f"src/{name}:1: no rule for folder {own}: add one to tests/tree/check.py"
            continue
        allowed = MAY_SEE[own] | {own}
        if ENGINE.search(name):
            allowed = ENGINE_SEES
        if CM_CORE.search(name):
            allowed = CM_CORE_SEES
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            seen = folder_of(match[1], path) if match else None
            if seen and seen not in allowed:
                yield f'src/{name}:{number}: {own} may not see {seen}: #include "{match[1]}"'


def check_spdx():
    for path in c_files("src", "tests", "bench", "fuzz"):
        with path.open() as file:
            if not SPDX.match(file.readline()):
                yield f"{path.relative_to(ROOT)}:1: the first line is no SPDX-License-Identifier"


def check_format():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else "none"
    if "version 14." not in version:
        print(f"SKIP: needs clang-format 14, found: {version.strip()}")
        sys.exit(SKIP)
    files = [f.relative_to(ROOT) for f in c_files("src", "tests", "bench", "fuzz")]
    if files:
        run = subprocess.run([tool, "--dry-run", "--Werror", *files], capture_output=True, text=True, cwd=ROOT)
        yield from (l for l in run.stderr.splitlines() if "error:" in l)


# Where the program of a CTest entry has its tests.
SOURCE_OF = (
    (re.compile(r"sim\.cases\.(\w+)"), "tests/sim/cases_{}.c"),
    (re.compile(r"verbs\.(\w+)"), "tests/verbs/{}.c"),
    (re.compile(r"rdmacm\.(\w+)"), "tests/rdmacm/{}.c"),
    (re.compile(r"wire\.(pcap|siw_pcap)"), "tests/wire/{}_test.c"),
    (re.compile(r"iwarp\.(\w+)"), "src/iwarp/{}_test.c"),
    (re.compile(r"wire\.(\w+)"), "src/wire/{}_test.c"),
)
ROW = re.compile(r"^\|(?P<case>[^|]*)\| (?P<entry>[\w.]+) \| (?P<test>\w+) \|$")


def tests_of(entry):
    """The names of the tests that the program of an entry runs; none when there is no such program."""
    for pattern, name in SOURCE_OF:
        match = pattern.fullmatch(entry)
        path = ROOT / name.format(match[1]) if match else None
        if path:
            return re.findall(r"(?:cmocka_unit_test|VT_TEST)\((\w+)\)", path.read_text()) if path.exists() else []
    return []


def check_conformance():
    for number, line in enumerate((ROOT / "docs/conformance.md").read_text().splitlines(), 1):
        if not line.startswith("|") or line.startswith(("| case |", "|---")):
            continue
        row = ROW.match(line)
        if not row:
            yield f"docs/conformance.md:{number}: not a row of case, entry and test"
        elif row["test"] not in tests_of(row["entry"]):
            yield f"docs/conformance.md:{number}: {row['entry']} has no test {row['test']}"


def main():
    checks = {"layers": check_layers, "spdx": check_spdx, "format": check_format, "conformance": check_conformance}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    breaches = list(checks[sys.argv[1]]())
    print("\n".join(breaches) if breaches else f"{sys.argv[1]}: clean")
    sys.exit(1 if breaches else 0)


main()
