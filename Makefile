# make help lists the targets. Nothing needs to be prepared: each target sets up what it needs (ci/setup.sh).
# TORCH=2.12.1 on the command line reaches every recipe by its environment; ci/env.sh puts that release's python in
# front.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO_ENV := . ci/env.sh;
PYTEST := $$VENV/bin/python -m pytest -q -rs -p no:cacheprovider --timeout=120
# Two files at a time: most of their time is that of one process that starts.
TWO    := -n 2 --dist loadfile
# Packages without a goroutine have no races. Of ccl/kernel, ccl/exec/p2p and ccl/verify some tests have goroutines.
RACE   := $$(go list ./cuda/... ./ccl/... ./transport/... ./internal/... ./pgbackend/... \
	| grep -vE -e '/ccl/(exec/p2p|member|plan|plan/reference|algo|algo/algotest|program|verify|sim|draw|tune|tune/measured|tune/online)$$' \
		-e '/(ccl/topo/network|internal/(agree|lint|netlab|netlab/with)|ccl/kernel|ccl/kernel/asmgen|cuda/driver/tablegen|cuda/group/(emit|page|route|share)|cuda/kernel|cuda/kernel/gen)$$')
# Of tests that take long, each runs once: these without the race detector, since others have the same goroutines run …
NO_RACE := ^TestConformance(Distant|TLS|Self|OfFaulty|PassThrough|OfMemory)$$|^TestConformance$$/^TwoPorts$$|^TestSmallRings$$
NO_RACE := $(NO_RACE)|^Test(PlansOfManyRanks|Troubleshooting|LendAnything|InterpretedLengths|RailsOrder|GraphsGrow)$$
# … and these only with it. make long runs all of them both ways.
ONLY_RACE := ^Test(ConformanceUnderCuts|ConformanceDisturbed|ReceivesGrow|Ports|RefusedAtRandom|RefusedPairs)$$
ONLY_RACE := $(ONLY_RACE)|^Test(QueueThatMoves|QueuesMatrix|FreesMatrix|AutoMeasures|InterpretedIsLetGo|RailsTimeout)$$

##@ Everyday

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile
	@printf '\n%s %s\n%s %s\n' \
		'TORCH=X.Y.Z with any of them: that release of torch (ci/torch.txt), in an environment of its own,' \
		'.venv-torchX.Y.Z;' \
		'PYTHON_VERSION=3.13: that Python, in .venv-py3.13.' \
		'make test with one of these runs the stages of the areas python, torch and packaging.' \
		'STAGES="test-go test-race": these stages; STAGES=all: all of them.'

.PHONY: setup
setup: ## .venv with the pinned requirements, Go, goccl installed; done again only where something changed
	@ci/setup.sh

.PHONY: demo
demo: setup ## Train a small network on digits with DistributedDataParallel: one process, goccl, gloo
	@$(GO_ENV) $$VENV/bin/python examples/compare.py

.PHONY: quick
quick: ## gofmt, vet, lint, and the short tests of the Go packages that a change reaches; a minute, mostly
	@$(GO_ENV) python3 ci/quick.py

.PHONY: test
test: setup ## Everything that CI runs, with a budget for each stage (ci/budget.txt)
	@$(if $(STAGES)$(TORCH)$(PYTHON_VERSION),,ci/rdma-vm.sh --prepare 2>/dev/null || [ $$? -eq 126 ]) # what it brings is no stage's time
	@$(GO_ENV) $$VENV/bin/python ci/test.py $(STAGES)

.PHONY: clean
clean: ## Remove what was built, and every .venv
	@if [ -d build ]; then chmod -R u+w build; fi
	@rm -rf build dist .venv .venv-* python/*.egg-info

##@ The stages of make test, for one at a time

.PHONY: test-format
test-format: ## gofmt has nothing to change, nothing is committed that was built
	@ci/format.sh

.PHONY: test-vet
test-vet: ## go vet
	@$(GO_ENV) go vet -pgo=off ./...

.PHONY: test-cross
test-cross: ## Build and vet for linux/arm64 and darwin/arm64
	@ci/cross.sh

.PHONY: test-generated
test-generated: ## Regenerating changes nothing
	@ci/generated.sh

.PHONY: test-api
test-api: ## What the stable packages export beside the last tagged release: CHANGELOG.md must speak of what is gone or changed
	@ci/apidiff.sh

.PHONY: test-go
test-go: ## Go tests without cgo, the short ones, in random order, with their coverage (make long runs all); each benchmark once
	@$(GO_ENV) CGO_ENABLED=0 python3 ci/gotest.py test-go -vet=off -p=3 -short -count=1 -shuffle=on -cover -timeout=540s \
		-skip='$(ONLY_RACE)' ./... \
		-args -test.bench=. -test.benchtime=1x # -bench itself would have one package at a time

.PHONY: test-cgo
test-cgo: ## Go tests of what needs cgo: cabi, and kernels whose instructions are emulated
	@$(GO_ENV) CGO_ENABLED=1 python3 ci/gotest.py test-cgo -count=1 -shuffle=on -bench=. -benchtime=1x -timeout=540s \
		./cabi/...
	@$(GO_ENV) CGO_ENABLED=1 python3 ci/gotest.py test-cgo.kernel -count=1 -run Emulated -timeout=540s ./ccl/kernel

.PHONY: test-race
test-race: ## Go tests under the race detector
	@$(GO_ENV) GORACE=atexit_sleep_ms=50 CGO_ENABLED=1 python3 ci/gotest.py test-race -vet=off -p=3 -race -short -count=1 -timeout=720s \
		-skip='$(NO_RACE)' $(RACE)
	@$(GO_ENV) CGO_ENABLED=1 python3 ci/gotest.py test-race.some -race -count=1 -run 'AtTheSameTime|Concurrent|ManyStops' \
		./ccl/kernel ./ccl/exec/p2p ./ccl/verify

.PHONY: test-cover
test-cover: ## Coverage, as test-go found it, of what makes, proves, compiles and simulates plans: 90 % or more
	@ci/cover.sh

.PHONY: test-verify
test-verify: ## Every algorithm is proven for 1 to 33 ranks (make long: to 64)
	@$(GO_ENV) mkdir -p build && go build -o build/goccl-verify ./cmd/goccl \
		&& time build/goccl-verify verify --all --ranks 1-33

.PHONY: test-cuda
test-cuda: ## Device groups on memory of the host: the whole matrix of calls, 1,000 seeds of order
	@$(GO_ENV) CGO_ENABLED=0 python3 ci/gotest.py test-cuda -count=1 -timeout=350s ./cuda/group \
		-run '^Test(Matrix|Order|SameOrderOfOperands|EachOrderingCounts)$$' -group.full

.PHONY: test-fuzz
test-fuzz: ## Every fuzz test for some seconds
	@ci/fuzz.sh 1s

.PHONY: test-soak
test-soak: ## Four ranks make mixed calls by shared memory, TCP and between two hosts, with cuts: 12 s by each road
	@$(GO_ENV) CGO_ENABLED=0 python3 ci/gotest.py test-soak -count=1 -v -timeout=300s ./tests/soak -soak.time=12s

.PHONY: test-drill
test-drill: ## A part of make drill
	@$(GO_ENV) mkdir -p build && CGO_ENABLED=0 go build -o build/goccl-drill ./cmd/goccl \
		&& build/goccl-drill drill --json > $$RECORDS/test-drill.cells

.PHONY: test-rdma-smoke
test-rdma-smoke: ## A part of make test-rdma
	@ci/rdma.sh test-rdma-smoke -short -timeout=150s -run '^TestAdapter$$|^TestCollectives$$/^rdma$$/^3$$' \
		./transport/rdma/verbs ./ccl

.PHONY: test-noasm
test-noasm: ## Kernels without assembly
	@$(GO_ENV) python3 ci/gotest.py test-noasm -tags=noasm -count=1 -timeout=360s ./ccl/kernel/...

.PHONY: test-python
test-python: ## Python tests, and that the benchmarks work
	@$(GO_ENV) $(PYTEST) $(TWO) --junitxml=$$RECORDS/test-python.xml tests/cabi tests/python tests/bench

.PHONY: test-features
test-features: ## torch's features on two to four ranks against one process (the quick ones), and the examples
	@$(GO_ENV) $(PYTEST) --junitxml=$$RECORDS/test-features.xml tests/features

.PHONY: test-packaging
test-packaging: ## What is in the wheel and in its libraries
	@$(GO_ENV) $(PYTEST) $(TWO) --junitxml=$$RECORDS/test-packaging.xml tests/packaging

.PHONY: test-gpu
test-gpu: ## The checks for a GPU as far as they go without one; the bundle of make gpu-bundle (make device installs it)
	@$(GO_ENV) $(PYTEST) --junitxml=$$RECORDS/test-gpu.xml tests/gpu

.PHONY: test-conformance
test-conformance: ## A selection of torch's own distributed tests, with goccl
	@$(GO_ENV) $(PYTEST) --junitxml=$$RECORDS/test-conformance.xml tests/conformance

.PHONY: test-device
test-device: ## Tensors of a device: a torch device of memory of the host, whose driver checks the order of all accesses
	@$(GO_ENV) $(PYTEST) --junitxml=$$RECORDS/test-device.xml tests/device

##@ Longer or by hand

.PHONY: cuda-windows
cuda-windows: ## make test-cuda for calls over windows, in graphs, and with a driver whose frees keep all callers waiting
	@$(GO_ENV) CGO_ENABLED=0 python3 ci/gotest.py cuda-windows -count=1 -timeout=2400s ./cuda/group \
		-run '^Test((Windows|Rails|Graphs|Lend|Interpreted|Frees)(Matrix|Order|EachOrderingCounts)|LendAnything|RailsAlgorithms|GraphReplays)$$' \
		-group.full

.PHONY: torch-versions
torch-versions: ## make test with each torch of ci/torch.txt, for the table of docs/versions.md (VERSIONS="2.12 2.14"; KEEP=1 keeps the environments)
	@. ci/env.sh; "$${PYTHON:-python3}" ci/versions.py torch $(VERSIONS)

.PHONY: python-versions
python-versions: ## The same with each python3.10 to python3.14 that this machine has, also pyenv's (VERSIONS="3.12 3.13"; STAGES=all; KEEP=1)
	@. ci/env.sh; "$${PYTHON:-python3}" ci/versions.py python $(VERSIONS)

.PHONY: conformance
conformance: setup ## All of torch's own distributed tests at 2, 3 and 4 ranks, goccl beside gloo (docs/conformance.md; CONFORMANCE_ARGS)
	@$(GO_ENV) $$VENV/bin/python tests/conformance/conformance.py $(CONFORMANCE_ARGS)

.PHONY: features
features: setup ## All tests of torch's features, with 2, 3 and 4 ranks (FEATURES: files, or other arguments of pytest)
	@$(GO_ENV) $(PYTEST) --long --durations=10 $(or $(FEATURES),tests/features)

.PHONY: device
device: setup ## All that is tested without a GPU of what runs on one: what test-device and test-gpu run, and an installed bundle
	@$(GO_ENV) $(PYTEST) --long --durations=10 tests/device
	@$(GO_ENV) $(PYTEST) --long --durations=10 tests/gpu

.PHONY: test-large
test-large: setup ## Tensors of more than 2**31 elements on two ranks (14 GiB of free memory, some minutes)
	@$(GO_ENV) $$VENV/bin/python tests/python/large.py

.PHONY: bench
bench: setup ## goccl beside Intel MPI, Open MPI, MPICH and Gloo in one run: ratios, CSV, picture (BENCH_ARGS: tests/bench/README.md)
	@$(GO_ENV) tests/bench/install.sh
	@$(GO_ENV) $$VENV/bin/python tests/bench/run.py $(or $(BENCH_ARGS),--bars)

.PHONY: bench-readme
bench-readme: setup ## The table and the picture of the README, measured anew on an idle machine (a quarter of an hour)
	@$(GO_ENV) tests/bench/install.sh
	@$(GO_ENV) $$VENV/bin/python tests/bench/run.py --ops all_reduce --torch-ops all_reduce --torch-ranks 2 --backends goccl,gloo \
		--runs 7 --out build/bench/readme
	@$(GO_ENV) $$VENV/bin/python tests/bench/readme.py build/bench/readme/runs.csv

.PHONY: predict
predict: ## docs/predict.md: how far predictions are off, measured anew on an idle machine (an hour; root; PREDICT_ARGS="--kept" only draws what is kept)
	@$(GO_ENV) tests/bench/install.sh plot
	@$(GO_ENV) python3 tests/bench/predict.py $(PREDICT_ARGS)

.PHONY: profile
profile: ## The profile by which the compiler chooses what to inline in libgoccl.so, made again: after a change of the way of small calls
	@$(GO_ENV) d=$$(mktemp -d) && trap "rm -rf $$d" EXIT \
		&& CGO_ENABLED=1 go test -run='^$$' -bench=Calls -benchtime=4s -cpuprofile=$$d/raw -o $$d/test ./cabi/exports \
		&& go tool pprof -proto -output=cabi/libgoccl/default.pgo $$d/test $$d/raw

.PHONY: bench-guard
bench-guard: setup ## Latencies of core and torch beside those of an earlier commit (BASE=01397ce): a table, an error where one stays above 1.15 (GUARD_ARGS)
	@$(GO_ENV) $$VENV/bin/python tests/bench/guard.py --base $(or $(BASE),01397ce) $(GUARD_ARGS)

.PHONY: bench-hosts
bench-hosts: setup ## goccl beside Gloo between hosts (network namespaces): short, long and slow wires; an error where a bar is missed (HOSTS_ARGS; root)
	@$(GO_ENV) $$VENV/bin/python tests/bench/hosts.py $(HOSTS_ARGS)

.PHONY: examples
examples: setup ## Every example (examples/README.md) in one process and with torchrun, compared (three minutes; EXAMPLES=pipeline.py for one)
	@$(GO_ENV) $$VENV/bin/python examples/run_all.py $(EXAMPLES)

.PHONY: frameworks
frameworks: setup ## Accelerate, Lightning, DeepSpeed, Ray Train: one training each with goccl, in environments of their own (FRAMEWORKS="ray lightning")
	@$(GO_ENV) "$$VENV/bin/python" tests/frameworks/run.py \
		$(if $(FRAMEWORKS),--frameworks "$(FRAMEWORKS)") $(FRAMEWORKS_ARGS)

.PHONY: long
long: setup ## What make test leaves out, or runs in part: all Go tests, also with the race detector; all plans of 1 to 64 ranks
	@$(GO_ENV) CGO_ENABLED=0 go test -count=1 -shuffle=on -timeout=30m ./...
	@$(GO_ENV) CGO_ENABLED=1 go test -race -count=1 -timeout=60m $(RACE)
	@$(GO_ENV) mkdir -p build && go build -o build/goccl-verify ./cmd/goccl \
		&& build/goccl-verify verify --all --ranks 1-64

.PHONY: race-long
race-long: setup ## What test-race runs, twenty times in random order (40 minutes on two cores)
	@$(GO_ENV) go test -race -short -count=20 -shuffle=on -timeout=120m $(RACE)

.PHONY: sanitize
sanitize: setup ## The C++ shim under ASan with UBSan, and under TSan: tests of works, futures, callbacks, groups, sparse, memory, hooks, exit (SANITIZERS=thread)
	@$(GO_ENV) $$VENV/bin/python ci/sanitize.py $(SANITIZERS)

.PHONY: model
model: setup ## The hand-over of ccl/exec, the recovery of TCP and the meeting over all interleavings, their large scenarios too
	@$(GO_ENV) go test -count=1 ./ccl/exec -run Model -model.full
	@$(GO_ENV) go test -count=1 -timeout=30m ./transport/tcp -run Recovery -model.full
	@$(GO_ENV) go test -count=1 -timeout=60m ./ccl/member -run Interleavings -model.full

.PHONY: catalogue
catalogue: setup ## Every algorithm over every transport, and whether it notices another call; every composition
	@$(GO_ENV) go test -count=1 -timeout=30m ./ccl/exec -run 'Catalogue|NoticesAnotherCall|Composed' -catalogue.full

.PHONY: disturbed
disturbed: setup ## Sequences of calls over links that are late, short of space, or cut, for SEEDS (100) fresh seeds
	@$(GO_ENV) go test -count=1 -timeout=60m ./ccl/exec -run 'Disturbed|CutOff' -faulty.seeds=$(or $(SEEDS),100)

.PHONY: online
online: setup ## GOCCL_TUNE=online in RUNS (1000) groups of 2 to 5 ranks that are late at random: all try, and keep, the same
	@$(GO_ENV) go test -count=1 -timeout=60m ./ccl -run OnlineNeverDiffers -online.runs=$(or $(RUNS),1000)

.PHONY: soak
soak: setup ## What test-soak runs, for TIME (30m) by each road (SOAK_ARGS="-soak.road=tcp -soak.seed=1")
	@$(GO_ENV) CGO_ENABLED=0 go test -count=1 -v -timeout=0 ./tests/soak -run Soak -soak.time=$(or $(TIME),30m) $(SOAK_ARGS)

.PHONY: drill
drill: ## What every rank is told when one dies, hangs, calls something else …: all cells (docs/drill.md; DRILL_ARGS; root, for the hosts)
	@$(GO_ENV) mkdir -p build && CGO_ENABLED=0 go build -o build/goccl-drill ./cmd/goccl \
		&& build/goccl-drill drill $(or $(DRILL_ARGS),--all)

.PHONY: agreement
agreement: setup ## Ranks die, come late, are refused, reached one way, or killed while a group grows, 200 times each at random (half an hour)
	@$(GO_ENV) go test -count=1 -timeout=60m ./ccl -run 'ShrinkAfterDeaths|GrowWithDeaths|RefusedAtRandom' -v \
		-shrink.times=200 -grow.times=200 -refusals=200
	@$(GO_ENV) go test -count=1 -timeout=60m ./internal/netlab -run OneWay -hosts.pairs=50
	@$(GO_ENV) $(PYTEST) --timeout=1800 --long tests/python/test_meeting_at_random.py -k 200

.PHONY: test-rdma
test-rdma: ## Go tests of RDMA with the system's libibverbs, in a virtual machine with soft RoCE (ci/rdma-vm.sh; root, to install it)
	@ci/rdma.sh test-rdma.verbs -timeout=240s ./transport/rdma/verbs
	@RDMA_VM_TIMEOUT=420 ci/rdma.sh test-rdma -timeout=400s -run 'OnAdapter' ./transport/rdma
	@RDMA_VM_TIMEOUT=420 ci/rdma.sh test-rdma.ccl -timeout=400s -run '^Test(Collectives|LargeMessages|InFlight)$$/^rdma' ./ccl
	@ci/rdma.sh test-rdma.processes -timeout=280s -run '^Test(Processes|Killed|LockLimit)$$' ./tests/rdma
	@RDMA_GUESTS=2 RDMA_VM_TIMEOUT=420 ci/rdma.sh test-rdma.pair -timeout=400s -run '^TestTwoMachines$$' ./tests/rdma
	@$(GO_ENV) mkdir -p build && CGO_ENABLED=0 go build -o build/goccl-rdma ./cmd/goccl
	@ci/rdma-vm.sh sh -ec 'for path in rdma tcp; do \
		build/goccl-rdma bench --transport $$path --size 8..8M --factor 16 --repeat 3; done' || [ $$? -eq 126 ]

.PHONY: test-arm64
test-arm64: ## Go tests of kernels, memory, waiting, transports and executor, built for arm64, under qemu-aarch64 (ci/arm64_skips.txt)
	@ci/arm64.sh

.PHONY: fuzz
fuzz: setup ## Every fuzz test for FUZZTIME (30s)
	@ci/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: lint
lint: setup ## gofmt, vet, the rules of internal/lint, and golangci-lint where it is installed
	@ci/format.sh
	@$(GO_ENV) go vet -pgo=off ./... && go test -count=1 ./internal/lint
	@if command -v golangci-lint >/dev/null; then $(GO_ENV) golangci-lint run ./...; \
	else echo "golangci-lint is not installed: its rules (.golangci.yml) were not checked"; fi

.PHONY: kernels
kernels: ## The code for devices in cuda/kernel, compiled again: after a change of its sources (x86_64; brings NVRTC, 90 MB)
	@ci/kernels.sh -always

.PHONY: kernels-check
kernels-check: ## Compiles the code for devices, and compares it with what is in the repository (x86_64; brings NVRTC, 90 MB)
	@ci/kernels.sh -check

.PHONY: test-kernels
test-kernels: ## The kernels for devices, compiled for the processor, on 2**24 pairs of each type and operator (two minutes)
	@$(GO_ENV) CGO_ENABLED=0 go test -count=1 -v -timeout=60m ./cuda/kernel -kernel.pairs=16777216

.PHONY: wheels
wheels: ## A wheel with shims for all torch of ci/torch.txt, and the source distribution, in dist/ (PYTHON_VERSION="3.12 3.13"; WHEELS_ARGS="--machine aarch64")
	@ci/wheels.sh $(WHEELS_ARGS)

.PHONY: test-wheels
test-wheels: setup ## The wheel in bare environments with each torch of ci/torch.txt (TORCHES="2.11.0 2.15.0"; KEEP=1; root)
	@$(GO_ENV) $(PYTEST) --timeout=3600 -s tests/wheels/wheels.py

.PHONY: test-wheels-arm64
test-wheels-arm64: ## The wheel for arm64 and Python 3.11 under qemu-aarch64: the command, and training on two ranks (KEEP=1; root)
	@ci/wheels_arm64.sh

.PHONY: docs
docs: ## The site of docs/, in build/docs/site (DO=serve: shows it; DO=look: screenshots, and whether its search finds messages)
	@ci/docs/build.sh $(DO)

.PHONY: launchers
launchers: setup ## docs/launch.md with goccl run, torchrun, and where they are installed Slurm and Open MPI (root, for slurmd)
	@$(GO_ENV) $(PYTEST) tests/launchers/launchers.py

.PHONY: gpu-bundle
gpu-bundle: setup ## What ci/gpu.sh needs on a machine with a GPU and torch, but without Go and a network (docs/cuda.md)
	@ci/gpu_bundle.sh
