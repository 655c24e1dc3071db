# SPDX-License-Identifier: MIT
# The everyday commands. CMake does the work; every goal first makes sure of its own Debian packages.

BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
# One entry more than there are cores: many wait.
SIDE_BY_SIDE = $(shell expr $(JOBS) + 1)
CTEST   = tests/run

# What `make test` leaves out, `make test-all` has: see docs/testing.md. `make check` is for the everyday edit.
test_TESTS  = -LE wide
check_TESTS = -L '^(unit|wire|sim|tree)$$' -LE 'wide|build'

# Sanitized builds run what they can say something about: not the source-tree checks, and nothing that
# measures time. Threads are watched where programs are ours.
ASAN_TESTS = -LE 'tree|unsanitized'
TSAN_TESTS = -LE 'tree|abi|unsanitized|clients'

# What tests run checks what the code relies on (src/base/asserts.h); what is used, installed or measured does not. They are
# in the same tree, so whoever goes from one to the other waits for the compiler.
TESTED   = -DANYRDMA_ASSERTS=ON -DANYRDMA_WERROR=ON
RELEASED = -DANYRDMA_ASSERTS=OFF

SOAK_SECONDS ?= 600

SOURCES = $(shell find src tests bench fuzz -name '*.[ch]')

.PHONY: all test-build test test-all check demo install bench asan tsan fuzz soak interop mutate format check-format clean help

all:
	@scripts/deps build
	cmake -G Ninja -B $(BUILD) $(RELEASED)
	cmake --build $(BUILD)

check: GOALS = check
test test-all: GOALS = test fuzz
test test-all check: test-build
	$(CTEST) $(BUILD) -j $(SIDE_BY_SIDE) $($@_TESTS)

test-build:
	@scripts/deps build $(GOALS)
	cmake -G Ninja -B $(BUILD) $(TESTED)
	cmake --build $(BUILD)

demo:
	@scripts/deps build demo
	cmake -G Ninja -B $(BUILD) $(RELEASED)
	cmake --build $(BUILD)
	$(BUILD)/bin/anyrdma demo

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

bench:
	@scripts/deps build bench
	cmake -G Ninja -B $(BUILD) $(RELEASED)
	cmake --build $(BUILD)
	bench/run $(BUILD)

asan:
	@scripts/deps build test
	cmake -G Ninja -B build-asan -DANYRDMA_WERROR=ON -DANYRDMA_SANITIZE=address,undefined
	cmake --build build-asan
	$(CTEST) build-asan --allow tests/sanitize/skips.txt -j $(JOBS) $(ASAN_TESTS)

# Some kernels place mappings where the thread sanitizer keeps its shadow; setarch -R turns that off, where it may.
tsan:
	@scripts/deps build test
	cmake -G Ninja -B build-tsan -DANYRDMA_WERROR=ON -DANYRDMA_SANITIZE=thread
	cmake --build build-tsan
	$$(setarch -R true 2>/dev/null && echo setarch -R) $(CTEST) build-tsan --allow tests/sanitize/skips.txt -j $(JOBS) $(TSAN_TESTS)

fuzz:
	@scripts/deps build fuzz
	fuzz/run $(SECONDS)

# Processes on real sockets that are killed and stopped, the simulation with new seeds, and threads that are late.
soak:
	@scripts/deps build test
	cmake -G Ninja -B $(BUILD) $(TESTED)
	cmake --build $(BUILD)
	$(BUILD)/tests/soak/soak --seconds $(SOAK_SECONDS)
	tests/sim/soak.sh $(BUILD) $(SOAK_SECONDS)
	tests/soak/crowd.sh $(BUILD) $(SOAK_SECONDS)
	tests/chaos/chaos.py . build-chaos --seconds $(SOAK_SECONDS)

# The wide set against Linux's own RoCE; builds a kernel the first time.
interop:
	@scripts/deps build test interop
	cmake -G Ninja -B $(BUILD) $(TESTED)
	cmake --build $(BUILD)
	-tests/interop/make_guest uml
	$(CTEST) $(BUILD) -C interop -L interop -j $(JOBS)

# One small fault at a time in the code, and who notices it; names or patterns of some: tests/mutate/run NAME...
mutate:
	@scripts/deps build test
	tests/mutate/run

format:
	clang-format -i $(SOURCES)

check-format:
	tests/tree/check.py format

clean:
	rm -rf build build-asan build-tsan build-fuzz build-mutate build-chaos

help:
	@echo 'make               build into $(BUILD)/'
	@echo 'make demo          build, then anyrdma beside TCP in one small table'
	@echo 'make check         build, then unit tests, wire formats, simulation, source tree: under a minute'
	@echo 'make test          build, then the test suite: ten to thirteen minutes on two cores'
	@echo 'make test-all      the same and what takes long: every network, long fuzzing and soak, all under the sanitizers'
	@echo 'make install       install below PREFIX ($(PREFIX)), staged below DESTDIR when set'
	@echo 'make bench         anyrdma beside TCP, with charts: a quarter of an hour; bench/run --quick for less'
	@echo 'make asan | tsan   the suite under the address and undefined | thread sanitizers'
	@echo 'make fuzz          fuzz the parsers of what comes from outside, for SECONDS (300) each'
	@echo 'make soak          mixed traffic of eight processes, kills and stops, then new seeds of the simulation,'
	@echo '                   then crowds of sockets on a busy machine, then chaos (threads that are late);'
	@echo '                   SOAK_SECONDS ($(SOAK_SECONDS)) each'
	@echo 'make interop       everything against Linux'\''s own RoCE, in a guest; builds a kernel the first time'
	@echo 'make mutate        put each of more than 400 small faults into the code, and see that a test notices it'
	@echo 'make format        clang-format the sources; check-format only looks'
	@echo 'make clean         remove the build trees'
	@echo 'Missing Debian packages are installed when root or through sudo, else named.'
