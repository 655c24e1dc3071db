#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the source tree itself: check.py layers | protocol | spdx | format | conformance | cancel | asserts | names | prose | probes | env | skips | claims [BUILD] | sets [BUILD] | replays [BUILD]

layers  reads the #includes of src/ and fails where a folder sees one it may not see (docs/architecture.md)
protocol  protocol logic (PROTOCOL below) does no I/O, has no clock and allocates nothing
spdx    every C file begins with a line that names its licence
format  clang-format has nothing to change
conformance  every test that docs/conformance.md names exists in the program of its entry
claims  every row of docs/coverage.md names tests that BUILD (build/) has, and every row of the README's table is there
sets    every name in the sanitizers' sets is that of an entry of BUILD (tests/sanitize/CMakeLists.txt)
replays  every simulation that has seeds is run twice and more, and its digests compared, by an entry of BUILD (tests/sim/replay.sh)
names   every identifier in backquotes in README.md and docs/, and every file of src/ named there, exists, and is in the
        file that is named beside it
prose   no line of README.md, CHANGELOG.md and docs/ is longer than 120 columns, but in tables, whose cells are short
asserts  the source asserts by src/base/asserts.h alone, which says in which builds
probes  every row of src/observe/probe.h is told somewhere, is in the manual, and its counters are counted by nobody else
env     the variables of src/base/env.h are those of the manual, and nobody else reads the environment
skips   who skips a case of a test says why (tests/skip.h)
cancel  every entry point of the libraries is safe from pthread_cancel (src/base/cancel.h), or listed with a reason

Each prints one line per breach, file:line first, and ends with status 1 if there was any.
"""
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
SKIP = 77  # CTest's SKIP_RETURN_CODE

# A folder sees itself and these. bringup alone sees all that an adapter is made of.
MAY_SEE = {
    "base": set(),
    "wire": {"base"},
    "observe": {"base", "wire"},  # base does not see it
    "local/pages": {"base"},  # hca registers memory with it
    "local/export": {"local/pages", "base"},  # and exports with this
    "host": {"observe", "base", "wire"},
    "link": {"host", "observe", "base", "wire"},
    "sysfs": {"host", "base"},  # the files of devices
    "hca": {"fabric", "sysfs", "local/export", "local/pages", "host", "observe", "base", "wire"},
    "engine": {"hca", "host", "observe", "base", "wire"},
    "local": {"local/export", "local/pages", "hca", "link", "observe", "base", "wire"},
    "ib": {"hca", "link", "local", "observe", "base", "wire"},
    "iwarp": {"hca", "link", "local", "ib", "observe", "base", "wire"},  # on one host, frames of ib carry its connections
    "bringup": {"fabric", "ib", "iwarp", "local", "link", "hca", "host", "base", "wire"},
    "fabric": {"link", "host", "wire", "base"},  # what programs and the subnet's process share
    "subnet": {"fabric", "wire", "base"},
    "fabricd": {"mad/ib", "sysfs", "fabric", "subnet", "host", "link", "wire", "base"},
    "mad/ib": {"base", "wire"},  # the MAD layer of an InfiniBand port: fabricd's
    "mad": {"hca", "host", "observe", "base", "wire"},
    "cm/ib": {"observe", "base", "wire"},  # the simulation and the fuzzer drive it as it is
    "cm": {"cm/ib", "iwarp", "mad", "hca", "host", "observe", "base", "wire"},
    "rsocket": {"observe", "base"},  # and the public headers, as a program
    "front": {"rsocket", "cm", "mad", "fabric", "sysfs", "hca", "host", "observe", "base", "wire"},
    "tool": {"hca", "host", "base", "wire"},
    "shim": {"host", "base"},
    "preload": {"base"},  # and librdmacm's public headers
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SPDX = re.compile(r"^(/\*|//) SPDX-License-Identifier: \S+")


def c_files(*folders):
    """Yields every .c and .h file below the named folders, in a stable order."""
    for folder in folders:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h"))


def folder_with_rule(name):
    """The innermost folder with a rule that a path below src/ lies in, or None."""
    return next((f.as_posix() for f in pathlib.PurePosixPath(name).parents if f.as_posix() in MAY_SEE), None)


def folder_of(path, includer):
    """The folder of src/ that an #include names, or None when it is not one of ours."""
    for base in (includer.parent, SRC):
        target = (base / path).resolve()
        if target.is_file() and SRC in target.parents:
            return folder_with_rule(target.relative_to(SRC).as_posix())
    return folder_with_rule(path)


def check_layers():
    for path in c_files("src"):
        if path.name.endswith("_test.c"):
            continue
        name = path.relative_to(SRC).as_posix()
        own = folder_with_rule(name)
        if not own:
            yield f"src/{name}:1: no rule for its folder: add one to tests/tree/check.py"
            continue
        allowed = MAY_SEE[own] | {own}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            seen = folder_of(match[1], path) if match else None
            if seen and seen not in allowed:
                yield f'src/{name}:{number}: {own} may not see {seen}: #include "{match[1]}"'


# Protocol logic: these folders, but for the files that connect it with sockets and other processes.
PROTOCOL = ("wire", "cm/ib", "ib", "iwarp")
IO_PART = {
    "ib/port.h", "ib/port.c", "ib/port_in.c", "ib/port_out.c",  # over links
    "ib/path.c", "ib/onesided.c", "ib/fetch.c",  # over the channel to processes of this host
    "iwarp/port.h", "iwarp/port.c", "iwarp/pump.c", "iwarp/open.c", "iwarp/stream_state.c",  # over TCP
    "iwarp/local_upgrade.c",
}
# It is told the time, is handed bytes and says where others are to be put: so it needs no more than these,
PURE_HEADERS = {
    "arpa/inet.h", "assert.h", "errno.h", "infiniband/verbs.h", "isa-l/crc.h", "netinet/in.h", "stdatomic.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdio.h", "string.h", "sys/uio.h",
}
# of ours none of these,
IO_HEADERS = re.compile(r"link/|host/|local/|base/(clock|fd|cancel)\.h")
# and calls nothing that allocates, looks at a clock, or is a system call that does I/O or waits.
IMPURE_CALL = re.compile(
    r"(?<![\w.>])((?:m|c|re|aligned_)alloc|free|strn?dup|v?asprintf|m(?:un|re)?map|memfd_create"
    r"|clock_\w+|gettimeofday|time|hca_clock_\w+|hca_engine_now|(?:nano|u)?sleep"
    r"|socket|socketpair|bind|listen|accept4?|connect|shutdown|[gs]etsockopt|(?:send|recv)(?:to|from|m?msg)?"
    r"|open(?:at)?|close|p?(?:read|write)v?|ioctl|fcntl|p?poll|p?select|epoll_\w+|eventfd|timerfd_\w+|process_vm_\w+"
    r"|f?(?:open|close|read|write|gets|puts|printf)|getenv|syscall|random_(?:bytes|u32)|local_channel_\w+|link_\w+)\s*\(")


def code_of(text):
    """The text with comments and strings blanked out, lines kept."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def check_protocol():
    for name in sorted(n for n in IO_PART if not (SRC / n).is_file()):
        yield f"tests/tree/check.py:1: IO_PART has {name}, which is not there"
    for path in c_files(*(f"src/{folder}" for folder in PROTOCOL)):
        name = path.relative_to(SRC).as_posix()
        if path.name.endswith(("_test.c", "_test.h")) or name in IO_PART:
            continue
        text = path.read_text()
        own = set(re.findall(r"^static [^;{}=]*?\b(\w+)\(", text, re.M))  # a verb that is also the name of a call
        for number, line in enumerate(text.splitlines(), 1):
            header = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
            if header and (header[1] == "<" and header[2] not in PURE_HEADERS or IO_HEADERS.match(header[2])
                           or header[2] in IO_PART):
                yield f"src/{name}:{number}: protocol logic needs no {header[2]}"
        for number, line in enumerate(code_of(text).splitlines(), 1):
            for call in IMPURE_CALL.findall(line):
                if call not in own:
                    yield f"src/{name}:{number}: protocol logic calls {call}()"


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
    (re.compile(r"hca\.(\w+)"), "src/hca/{}_test.c"),
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


# Tables without claims of this kind: what is different on iWARP devices; the others end with a column of tests.
NO_CLAIMS = ("## iWARP devices",)
# What says yes and no test shows: strangers' programs that are in no package.
BY_HAND = ("librpma 1.2",)
# Names there are calls and codes of the API, without what these begin with, but where programs are listed.
OF_PROGRAMS = ("### Strangers' programs by iWARP", "## What the README says")
BEGINS = ("ibv_", "ibv_wr_", "ibv_wc_", "rdma_", "IBV_EVENT_", "IBV_QP_EX_WITH_", "IBV_WC_EX_WITH_", "IBV_CREATE_CQ_ATTR_",
          "IBV_ACCESS_")
API = ("infiniband/verbs.h", "infiniband/umad.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h")
# Where a test that coverage.md names is written: the entry, and all of these.
CLAIM_SOURCES = (
    (r"verbs\.[\w*]+\.(\w+)", "tests/verbs/{}.c", "tests/verbs/fixture.[ch]", "tests/verbs/wait.c", "tests/verbs/queue.c"),
    (r"rdmacm\.(\w+)", "tests/rdmacm/{}.c", "tests/rdmacm/{}_options.c", "tests/rdmacm/world.c"),
    (r"umad\.(\w+)", "tests/umad/{}.c", "tests/umad/world.c"),
    (r"sim\.cases\.(\w+)", "tests/sim/cases_{}.c"),
    (r"hca\.(\w+)", "src/hca/{}_test.c"),
    (r"mad\.(\w+)", "src/mad/{}_test.c", "src/mad/ib/{}_test.c"),
    (r"clients\.(\w+).*", "tests/clients/{}.sh"),
    (r"attack\.(.+)", "tests/attack/cases/*.py"),
    (r"abi\.values(.*)", "tests/abi/abi.py"),
    (r"abi\.exports(.*)", "src/front/*.map"),  # it compares all that the stock libraries have
)


def tables(path):
    """Yields heading, line number and cells of each table row of a page, without the head of the table."""
    heading, before = "", ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#"):
            heading = line
        if line.startswith("|") and before.startswith("|") and not line.startswith("|---"):
            yield heading, number, [cell.strip() for cell in line.strip("|").split(" | ")]
        before = line


def build_given():
    return sys.argv[2] if len(sys.argv) > 2 else ROOT / "build"


def entries_of(build):
    run = subprocess.run(["ctest", "--test-dir", build, "-N", "-C", "interop"], capture_output=True, text=True, check=False)
    return re.findall(r"Test +#\d+: (\S+)", run.stdout)


def source_of_claim(name):
    """The text of the tests that a claim names, without comments."""
    paths = [path for pattern, *globs in CLAIM_SOURCES if (match := re.fullmatch(pattern, name))
             for glob in globs for path in ROOT.glob(glob.format(match[1]))]
    return "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in paths)


def words_of_api():
    headers = [pathlib.Path("/usr/include") / name for name in API]
    return set(re.findall(r"\w+", "\n".join(path.read_text() for path in headers)))


def not_in_tests(cell, names, api):
    """The calls and codes of a cell that no test of these names mentions."""
    texts = "\n".join(source_of_claim(name) for name in names)
    for call in re.findall(r"`(\w+)`", cell):
        whole = [begin + call.lstrip("_") for begin in ("", *BEGINS) if begin + call.lstrip("_") in api]
        if not re.search(rf"\b(?:{'|'.join(whole)})\b" if whole else rf"(?:\b|_){call}\b", texts):
            yield call


def check_claims():
    build, readme, api = build_given(), set(), words_of_api()
    entries = entries_of(build)
    if not entries:
        yield f"docs/coverage.md:1: {build} has no tests to compare with"
    for heading, number, cells in tables(ROOT / "docs/coverage.md"):
        if heading in NO_CLAIMS:
            continue
        names = re.findall(r"`([a-z]+\.[\w.*-]+)`", cells[-1])
        if not names and (not re.match(r"by hand|–", cells[-1]) or
                          any(cell.startswith("yes") for cell in cells) and not cells[0].startswith(BY_HAND)):
            yield f"docs/coverage.md:{number}: names no test"
        if heading not in OF_PROGRAMS:
            for call in not_in_tests(cells[0], names, api):
                yield f"docs/coverage.md:{number}: {call} is in none of its tests"
        for name in names:
            if not fnmatch.filter(entries, name):
                yield f"docs/coverage.md:{number}: there is no test {name}"
        if heading == "## What the README says":
            readme.add(cells[0])
    for heading, number, cells in tables(ROOT / "README.md"):
        if heading == "## What runs" and not any(cells[0].startswith(row) for row in readme):
            yield f"README.md:{number}: not in docs/coverage.md: {cells[0][:40]}"


def alternatives(pattern):
    """What an expression stands for, one without groups each: ^(a|b)\\.c is ^a\\.c and ^b\\.c."""
    group = re.search(r"\(([^()]*)\)", pattern)
    if not group:
        return [pattern]
    return [p for name in group[1].split("|") for p in alternatives(pattern[:group.start()] + name + pattern[group.end():])]


def check_sets():
    entries = entries_of(build_given())
    lists = (ROOT / "tests/sanitize/CMakeLists.txt").read_text()
    for number, line in enumerate(lists.splitlines(), 1):
        expression = re.match(r'  "(\^.*?)"\)?$', line)
        for name in alternatives(expression[1].replace("\\\\", "\\")) if expression else ():
            if not any(re.search(name, entry) for entry in entries):
                yield f"tests/sanitize/CMakeLists.txt:{number}: there is no entry {name}"


# Between two real processes, where the scheduler has its part.
NO_REPLAY = {"two_test"}


def check_replays():
    run = subprocess.run(["ctest", "--test-dir", build_given(), "--show-only=json-v1", "-R", "^sim[.]replay[.]"],
                         capture_output=True, text=True, check=False)
    commands = [test.get("command", []) for test in json.loads(run.stdout or '{"tests": []}')["tests"]]
    replayed = {pathlib.Path(word).name.removeprefix("test_sim_") for command in commands for word in command}
    for path in sorted((ROOT / "tests/sim").glob("*.c")):
        text = path.read_text()
        if "seeds_init(" not in text or path.name == "seeds.c" or path.stem in NO_REPLAY:
            continue
        if not {path.stem, path.stem.removesuffix("_test")} & replayed:
            yield f"tests/sim/{path.name}:1: no entry sim.replay.* runs it"


# Entry points that do not begin with CANCEL_SAFE: why nobody can be cancelled there with a lock held.
NO_LOCK_FILES = {"rdmacm_misc.c", "umad_mad.c", "umad_strings.c", "verbs_kern.c", "verbs_rates.c", "verbs_strings.c"}
NOT_CANCEL_SAFE = {
    "the data path: no system call under a lock but past libc, or switched off around": {
        "verbs_poll_cq", "verbs_req_notify_cq", "verbs_post_send", "verbs_post_recv", "verbs_post_srq_recv",
        "ibv_ack_cq_events",
    },
    "waits, with no lock held; what comes before and behind is safe by itself": {
        "ibv_get_cq_event", "ibv_get_async_event", "rdma_create_ep", "rdma_get_cm_event", "rdma_get_request",
        "rdma_getaddrinfo", "umad_poll", "umad_recv",
    },
    "another entry point does all of it": {"rrecv", "rread", "rsend", "rwrite", "ibv_query_port"},
    "takes no lock and makes no call": {
        "ibv_fork_init", "ibv_free_device_list", "ibv_get_device_guid", "ibv_get_device_index", "ibv_get_device_name",
        "ibv_get_pkey_index", "ibv_is_fork_initialized", "ibv_qp_to_qp_ex", "ibv_query_gid_type", "ibv_query_pkey",
        "ibv_query_qp_data_in_order", "ibv_reg_dmabuf_mr", "rdma_free_devices", "rdma_freeaddrinfo",
        "rdma_get_dst_port", "rdma_get_remote_ece", "rdma_get_src_port", "rdma_set_local_ece", "verbs_advise_mr",
        "umad_done", "umad_free_ca_device_list", "umad_release_ca", "umad_release_port",
        "umad_sort_ca_device_list", "verbs_get_srq_num", "verbs_modify_cq", "verbs_query_rt_values",
    },
    "for librdmacm, whose entry points are safe": {
        "verbs_adapter", "verbs_device_any", "verbs_port_of",
    },
}
# What does the waiting of some of these, behind the front.
WAITS_IN_CM = {"rcm_event_take", "rcm_ep_create", "rcm_ep_get_request"}
# The same for the preload library's, which hold nothing while they wait (src/preload/signals.h).
PRELOAD_WAITS = {"connect_here", "connect_datagram", "accept4"}
FUNCTION = re.compile(r"^(?![\s#/*}]|static)[^\n;{}=]*?\b(?!int\()(\w+)\)?\((?:[^;{}]*?)\)\n\{\n(.*?)^\}", re.M | re.S)


def entry_points():
    """The names that the libraries export, and those in the tables of inline verbs."""
    front = SRC / "front"
    for path in sorted(front.glob("*.map")):
        yield from re.findall(r"^\s+(\w+);", path.read_text(), re.M)
    yield from re.findall(r"= (verbs_\w+)[,;]", (front / "verbs_ops.c").read_text())


def safe_functions(folder):
    """Those that begin with CANCEL_SAFE."""
    for path in sorted((SRC / folder).glob("*.c")):
        for match in FUNCTION.finditer(path.read_text()):
            if match[2].startswith("\tCANCEL_SAFE;\n"):
                yield match[1]


def check_cancel():
    names, listed, seen = set(entry_points()), set().union(*NOT_CANCEL_SAFE.values()), set()
    for path in sorted((SRC / "front").glob("*.c")):
        text = path.read_text()
        for match in FUNCTION.finditer(text):
            name, where = match[1], f"src/front/{path.name}:{text.count(chr(10), 0, match.start()) + 1}"
            if name not in names or path.name in NO_LOCK_FILES:
                continue
            seen.add(name)
            safe = re.match(r"\t(RSOCK_)?CANCEL_SAFE;\n", match[2])
            if not safe and name not in listed:
                yield f"{where}: {name} may be cancelled with a lock held: begin with CANCEL_SAFE (base/cancel.h)"
            if safe and name in listed:
                yield f"{where}: {name} is safe: take it out of NOT_CANCEL_SAFE"
    for name in sorted(WAITS_IN_CM - set(safe_functions("cm"))):
        yield f"src/cm: {name} may be cancelled with a lock held: begin with CANCEL_SAFE (base/cancel.h)"
    for name in sorted(listed - seen):
        yield f"tests/tree/check.py:1: NOT_CANCEL_SAFE has {name}, which is no entry point"


def check_cancel_preload():
    """Where handlers wait locks may be held; the macros of data.c are for calls that hold none."""
    for path in sorted((SRC / "preload").glob("*.c")):
        text = path.read_text()
        for match in re.finditer(r"^(?![\s#/*}])[^;{}=]*?\b(\w+)\([^;{}]*?\)\n\{\n(.*?)^\}", text, re.M | re.S):
            body, where = match[2], f"src/preload/{path.name}:{text.count(chr(10), 0, match.start()) + 1}"
            if "\tHANDLERS_WAIT;\n" in body and "\tCANCEL_SAFE;\n" not in body and match[1] not in PRELOAD_WAITS:
                yield f"{where}: {match[1]} may be cancelled with a lock held: CANCEL_SAFE behind HANDLERS_WAIT"


# What the docs name without it being ours; and what they leave out in front of the names of calls and codes.
NAMES_OF_OTHERS = {"MADV_MERGEABLE", "RssShmem", "_copy_from_iter", "cm_work_handler", "freopen", "mbind", "roce_wg0",
                   "rt_sigprocmask", "shmem", "siw0", "wg0"}
LEFT_OUT = ("ibv_", "ibv_wr_", "rdma_", "IBV_WC_", "IBV_EVENT_")
NAMES_ALL_CALLS = "docs/coverage.md"  # also those of newer headers than ours


def check_asserts():
    """assert() is checked in every build; ours in those that tests run."""
    for path in c_files("src"):
        name = path.relative_to(SRC).as_posix()
        if path.name.endswith(("_test.c", "_test.h")) or name in ("base/asserts.h", "base/lock.h"):
            continue
        for number, line in enumerate(code_of(path.read_text()).splitlines(), 1):
            if re.search(r"\bassert\s*\(", line):
                yield f"src/{name}:{number}: assert_that() (base/asserts.h), not assert()"


def words_of_source():
    words = set(re.findall(r"\w+", (ROOT / "Makefile").read_text()))
    for folder in ("src", "tests", "fuzz", "bench", "scripts"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".c", ".h", ".py", ".sh", ".map", ".txt", ".cmake", ""):
                words |= set(re.findall(r"\w+", path.read_text(errors="replace")))
    return words


def named_elsewhere(text):
    """Where a page says in which file a name is, `name` (folder/file.c), and that file does not have it."""
    for match in re.finditer(r"`(\w+)`(?: \(|,\s+)((?:[\w/]+/)?\w+\.[ch])\b", text):
        name, file = match[1], match[2]
        paths = [SRC / file] if "/" in file else list(SRC.rglob(file))
        if not any(path.is_file() and re.search(rf"\b{name}\b", path.read_text()) for path in paths):
            yield text.count("\n", 0, match.start()) + 1, f"{name} is not in {file}"


def check_names():
    words, files = words_of_source(), "|".join(MAY_SEE)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        where = path.relative_to(ROOT).as_posix()
        yield from (f"{where}:{number}: {what}" for number, what in named_elsewhere(path.read_text()))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"`([A-Za-z_]\w*)(?:\(\))?`", line):
                known = name in words or name in NAMES_OF_OTHERS or any(p + name in words for p in LEFT_OUT)
                if not known and where != NAMES_ALL_CALLS:
                    yield f"{where}:{number}: nothing in the source is called {name}"
            for name in re.findall(rf"\b((?:{files})/\w+\.[ch])\b", line):
                if not (SRC / name).is_file():
                    yield f"{where}:{number}: there is no src/{name}"


LINE_MOST, CELL_MOST = 120, 160


def check_prose():
    """Code blocks are as long as they are; and so are cells that list nothing but names."""
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        where, code = path.relative_to(ROOT), False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code ^= line.startswith("```")
            if line.startswith("|"):
                for cell in line.strip("|").split(" | "):
                    if len(cell) > CELL_MOST and re.sub(r"`[^`]*`|[ ,.]", "", cell):
                        yield f"{where}:{number}: a paragraph in a table: {cell[:40]}"
            elif len(line) > LINE_MOST and not code and not line.startswith("    "):
                yield f"{where}:{number}: longer than {LINE_MOST} columns"


def check_probes():
    """Counters that go up by one do so where the probe is told: hca_qp_probe(), hca_adapter_probe()."""
    header = SRC / "observe/probe.h"
    lines = header.read_text().splitlines()
    rows = [(n, m[1]) for n, line in enumerate(lines, 1) if (m := re.match(r"\tP\((\w+),", line))]
    counters = re.findall(r"(?:QP|ADAPTER)_COUNTER\((\w+)\)", "\n".join(lines))
    by_hand = re.compile(rf"count->(?:{'|'.join(counters)})(?:\+\+| \+=)")
    told = set()
    for path in c_files("src"):
        text = path.read_text()
        if path == header or path.name.endswith("_test.c"):
            continue
        told |= set(re.findall(r"\bPROBE\((\w+)[,)]|_probe\([^,()]+(?:\([^()]*\))?, ([A-Z]\w+)[,)]", text))
        for number, line in enumerate(text.splitlines(), 1):
            if by_hand.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: counted by a probe: hca_qp_probe(), hca_adapter_probe()"
            if "log_debug(" in line and path.parent.name not in ("base", "preload"):
                yield f"{path.relative_to(ROOT)}:{number}: what is for developers is a probe with words (observe/probe.h)"
    told = {name for pair in told for name in pair if name}
    manual = set(re.findall(r"\b[A-Z_]+\b", (ROOT / "man/anyrdma.1").read_text()))
    for number, name in rows:
        if name not in told:
            yield f"src/observe/probe.h:{number}: nobody tells {name}"
        if name not in manual:
            yield f"src/observe/probe.h:{number}: {name} is not in man/anyrdma.1"
    for name in sorted(told - {name for _, name in rows} - {"name"}):
        yield f"src/observe/probe.h:1: no row for {name}"


# What is not ours, or of a build for tests alone.
READ_ELSEWHERE = {"src/tool": {"PATH", "NO_COLOR", "TERM", "LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS"}, "src/base": {"ANYRDMA_CHAOS_SEED"},
                  "src/shim": {"const char *name", "ANYRDMA_TREE"}}  # from `anyrdma run --host` to the shim


def check_skips():
    for path in c_files("src", "tests"):
        name = path.relative_to(ROOT).as_posix()
        if name == "tests/skip.h":
            continue
        for number, line in enumerate(code_of(path.read_text()).splitlines(), 1):
            if re.search(r"\bskip\(\)", line):
                yield f"{name}:{number}: nobody knows why: skip_because() (tests/skip.h)"


def check_env():
    table = re.findall(r"^\tV\((\w+),", (SRC / "base/env.h").read_text(), re.M)
    manual = (ROOT / "man/anyrdma.1").read_text()
    section = re.search(r"^\.Sh ENVIRONMENT\n(.*?)^\.Sh ", manual, re.M | re.S)[1]
    told = [name for line in re.findall(r"^\.It Ev (.*)$", section, re.M) for name in re.split(r" , ", line)]
    if [name for name in told if name != "NO_COLOR"] != table:  # that one is the command's
        yield f"man/anyrdma.1:1: ENVIRONMENT has {', '.join(told)}; src/base/env.h {', '.join(table)}"
    for path in c_files("src"):
        name = path.relative_to(ROOT)
        if path.name.endswith("_test.c") or name.as_posix() == "src/base/env.c":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for what in re.findall(r"getenv\(([^)]*)\)", line):
                if what.strip('"') not in READ_ELSEWHERE.get(name.parent.as_posix(), ()):
                    yield f"{name}:{number}: {what} is for base/env.h to read"


def main():
    checks = {
        "layers": check_layers,
        "protocol": check_protocol,
        "spdx": check_spdx,
        "format": check_format,
        "conformance": check_conformance,
        "cancel": lambda: [*check_cancel(), *check_cancel_preload()],
        "asserts": check_asserts,
        "names": check_names,
        "prose": check_prose,
        "probes": check_probes,
        "env": check_env,
        "skips": check_skips,
        "claims": check_claims,
        "sets": check_sets,
        "replays": check_replays,
    }
    if len(sys.argv) < 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    breaches = list(checks[sys.argv[1]]())
    print("\n".join(breaches) if breaches else f"{sys.argv[1]}: clean")
    sys.exit(1 if breaches else 0)


main()
