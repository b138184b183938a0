# The targets call scripts/ and the presets.
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
# Some tests wait more than they compute, so one more runs than there are cores.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)

# A build from nothing finds nothing in the compiler cache, so the cache need not preprocess every source by itself before
# it lets the compiler do so: the headers that the compiler names tell it enough.
export CCACHE_DEPEND ?= 1

.PHONY: demo test bench lint format install-deps sanitize linearizability soak fuzz faults isolation containers kubernetes browser s3 packages install-test slurm simulate

# Installs what is missing, builds, and runs a job from submit to a downloaded checkpoint.
# DATASETS=DIR trains on real Fashion-MNIST found there.
demo: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target trainyard trainyard-fetch trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer trainyard-program trainyard-enter
	BIN=$(CURDIR)/$(BUILD)/bin DATASETS="$(DATASETS)" scripts/demo.sh

# Builds everything and runs every test; ends with ctest's summary.
test: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS)
	ctest --preset $(PRESET) -j$(TEST_JOBS)

# Injects every fault as often as the long lane wants, which takes about an hour, and writes the table in
# docs/reliability.md. FAULTS=REGEX runs only the programs of that name; the table keeps the other rows of earlier runs.
faults: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS)
	mkdir -p $(BUILD)/faults
	TRAINYARD_FAULTS=long TRAINYARD_FAULTS_OUT=$(CURDIR)/$(BUILD)/faults TRAINYARD_FAULTS_COMMIT=$$(git rev-parse --short=12 HEAD) \
	  ctest --preset $(PRESET) -j$(JOBS) -L faults -R "$(FAULTS)"; \
	  status=$$?; scripts/fault_table.py $(BUILD)/faults/rows.jsonl && exit $$status

# Compares ours with PyTorch where that is installed, and prints tables.
bench: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS)
	BIN=$(CURDIR)/$(BUILD)/bin scripts/bench.sh

# Runs the tests under the address, undefined-behaviour and thread sanitizers. SANITIZERS=tsan runs one lane.
sanitize:
	scripts/install_deps.sh
	JOBS=$(JOBS) scripts/sanitize.sh

# Lets users work with a server that is killed again and again, in ROUNDS histories, looks for an order that explains each
# of them, and writes the counts into docs/reliability.md.
ROUNDS ?= 100
linearizability: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target linearizability_test
	python3 tests/linearizability/run_long.py --bin $(BUILD)/bin --rounds $(ROUNDS) --docs docs

# Lives as a lab does for SOAK_SECONDS, watches what grows, and writes the curves and the table into docs/.
SOAK_SECONDS ?= 3600
soak: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target trainyard trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer noop_trainer
	python3 tests/soak/soak.py --bin $(BUILD)/bin --seconds $(SOAK_SECONDS) --out $(BUILD)/soak --docs docs

# Tests control groups, sandboxes and two users with the real units, in a Debian 12 under user-mode Linux. It needs root and
# the packages user-mode-linux, mmdebstrap and e2fsprogs, and skips visibly without them.
isolation: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target trainyard trainyard-server trainyard-worker trainyard-supervisor trainyard-program
	BIN=$(CURDIR)/$(BUILD)/bin WORK=$(CURDIR)/$(BUILD)/isolation scripts/isolation.sh

# Opens every view of the page in Chromium against a real server, and keeps a picture of each in build/.
browser: $(BUILD)/build.ninja
	scripts/install_deps.sh --browser
	cmake --build --preset $(PRESET) -j$(JOBS) --target $(PROGRAMS)
	tests/browser/browser_test.sh --bin $(CURDIR)/$(BUILD)/bin --shots $(CURDIR)/$(BUILD)/browser
	tests/browser/page_pictures_test.sh --out $(CURDIR)/$(BUILD)/pictures

PROGRAMS := trainyard trainyard-fetch trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer trainyard-program trainyard-enter
# Builds the images of deploy/docker from the programs, and runs them with podman and runc. It needs root and the packages of
# scripts/install_deps.sh --deploy, and skips visibly without them.
containers: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target $(PROGRAMS)
	BIN=$(CURDIR)/$(BUILD)/bin WORK=$(CURDIR)/$(BUILD)/containers scripts/containers_test.sh || [ $$? = 77 ]

# Runs what deploy/kubernetes says on a real Kubernetes API server, with a node that starts processes in place of containers.
# It needs root, the same packages, npm and the programs that scripts/build_kubernetes.sh builds, and skips visibly without.
kubernetes: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target $(PROGRAMS) kubernetes_cluster_test
	BIN=$(CURDIR)/$(BUILD)/bin WORK=$(CURDIR)/$(BUILD)/kubernetes scripts/kubernetes_test.sh || [ $$? = 77 ]

# Asks of a real radosgw what tests/s3 asks of the fake. It needs root and the packages of scripts/install_deps.sh --s3, and skips
# visibly without them.
s3: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target s3_conformance_test \
	  trainyard trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer
	BIN=$(CURDIR)/$(BUILD)/bin WORK=$(CURDIR)/$(BUILD)/s3 scripts/s3_test.sh || [ $$? = 77 ]

# Asks a real Slurm for pilots, which each test boots for itself from Debian's packages.
slurm: $(BUILD)/build.ninja
	scripts/install_deps.sh --slurm
	cmake --build --preset $(PRESET) -j$(JOBS) --target slurm_test
	ctest --preset $(PRESET) -L slurm --output-on-failure

# Makes Debian packages in build/packages. PRESET=cuda makes trainyard-worker-cuda as well.
packages: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target shipped
	scripts/package.sh $(BUILD)

# Installs the packages in a Debian 12 under user-mode Linux: two users, a reboot and an upgrade in the middle of a job,
# removal. It needs root and the packages user-mode-linux, mmdebstrap and e2fsprogs, and skips visibly without them.
install-test: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target shipped
	BUILD=$(CURDIR)/$(BUILD) WORK=$(CURDIR)/$(BUILD)/install scripts/install_test.sh

# Runs clang-tidy over all sources, or only over LINT_FILES="a.cc b.cc".
lint:
	scripts/install_deps.sh --lint
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) -j$(JOBS) --target ty_proto
	JOBS=$(JOBS) scripts/lint.sh $(BUILD) $(LINT_FILES)

# Simulates HOURS of a pool with seeds that were not tried before, and adds them to the tally in docs/reliability.md.
HOURS ?= 2000
simulate: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j$(JOBS) --target sim
	scripts/simulate.py --bin $(BUILD)/bin --hours $(HOURS) --jobs $(JOBS)

# Runs each fuzz target for FUZZ_SECONDS (60) with clang's libFuzzer, keeps what it finds, and adds it to the tally in
# docs/reliability.md. make fuzz TARGETS="jpeg tar" runs only some.
fuzz:
	JOBS=$(JOBS) scripts/fuzz.sh $(TARGETS)

# Formats all sources; scripts/check_format.sh only lists those that it would change.
format:
	scripts/check_format.sh --fix

install-deps:
	scripts/install_deps.sh

$(BUILD)/build.ninja: scripts/install_deps.sh
	scripts/install_deps.sh
	cmake --preset $(PRESET)
