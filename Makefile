# Quietcore. `make help` lists what there is.
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
PACKAGES := ./...
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
FUZZTIME ?= 20s
FUZZSHARE ?= 1
# What is linted, tested and run is compiled as what is built is: Go compiles a package once, not once for each.
export CGO_ENABLED = 0
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath
# Modules of their own: what they need is no dependency of the daemon.
MODULES := hack/chart hack/cpumanager hack/image hack/release scheduler
# What of e2e/kubernetes is short enough to run every time.
KUBERNETES_SMOKE := refused,tenant,rollout,report,claims-smoke

# Where generated files are.
GENERATED := docs cpi/counter charts hack/chart/testdata internal/script/testdata/semantics

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/quietcore and bin/kubectl-quietcore, static binaries
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/quietcore ./cmd/kubectl-quietcore

.PHONY: demo
demo: setup-vm ## show the main job on a real runtime in a virtual machine; KEEP=1 leaves a shell in it, DRIVER=cgroupfs does without systemd
	@$(GO) run ./e2e/demo $(if $(KEEP),-keep) $(if $(DRIVER),-driver $(DRIVER))

.PHONY: test
test: test-fast test-scheduler chart test-cpumanager test-vm e2e-kubernetes-smoke ## run all tests, installing what they need

.PHONY: test-fast
test-fast: setup-test ## everything that needs no virtual machine
	QUIETCORE_CI=1 $(GO) test $(PACKAGES)
	QUIETCORE_CI=1 $(GO) test -tags quietcore_faults -run TestFailAt ./cmd/quietcore

.PHONY: scheduler
scheduler: ## build bin/quietcore-scheduler, and Kubernetes' scheduler first: four minutes, once
	cd scheduler && kubernetes=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubernetes) && \
		$(GO) build -ldflags \
		"-s -w -X k8s.io/component-base/version.gitVersion=$$kubernetes+quietcore-$(VERSION)" -o ../bin/ ./cmd/quietcore-scheduler

.PHONY: test-placement test-scheduler
test-placement: ## what the scheduler decides by, without Kubernetes: random clusters in which everything comes late
	cd scheduler && $(GO) test ./placement ./simulate
test-scheduler: ## the same, the scheduler's scenarios on a real API server and etcd, 1,000 nodes in kube-scheduler's own framework; builds Kubernetes first: ten minutes, once
	cd scheduler && $(GO) build -o /dev/null ./cmd/quietcore-scheduler
	@bin=$$($(GO) run ./e2e/kubernetes -build) && set -x && cd scheduler && QUIETCORE_CONTROL_PLANE=$$bin $(GO) test -count=1 -vet=off ./...

.PHONY: quality-scheduler load-scheduler demo-cluster
quality-scheduler: ## on 2,000 random clusters, QUIETCORE_CLUSTERS=: how many pods the scheduler, the stock one and Koordinator's rules have run; three minutes
	cd scheduler && QUIETCORE_CLUSTERS=$${QUIETCORE_CLUSTERS:-2000} $(GO) test ./placement -count=1 -v -timeout 2h -run TestQuality
load-scheduler: ## 2,000 pods of five kinds, PODS=, for the stock scheduler and for ours on a real API server: how many are bound, and how many of these their nodes refuse; two minutes on a free machine; builds Kubernetes first
	bin=$$($(GO) run ./e2e/kubernetes -build) && cd scheduler && QUIETCORE_CONTROL_PLANE=$$bin QUIETCORE_LOAD=$(or $(PODS),2000) \
		$(GO) test ./plugin -count=1 -vet=off -v -timeout 2h -run TestAgainstStock
demo-cluster: setup-vm ## show the scheduler on a cluster of two virtual machines with kubelets: where it sends pods that the stock scheduler sends to a node that refuses them; builds Kubernetes first
	$(GO) run ./e2e/kubernetes -driver systemd -pods 4 -only scheduler

.PHONY: bench-scheduler
bench-scheduler: ## each budget of the scheduler with its figure, on 5,000 nodes of 256 CPUs, with the plugin and without by turns, medians of five; ten minutes. QUIETCORE_NODES, QUIETCORE_PODS and QUIETCORE_ROUNDS are other sizes; builds Kubernetes' scheduler first
	cd scheduler && QUIETCORE_NODES=$${QUIETCORE_NODES:-5000} $(GO) test ./plugin -run '^$$' -bench 'Scheduling|Restart|Filter' -benchtime 1x -timeout 2h
	cd scheduler && QUIETCORE_NODES=$${QUIETCORE_NODES:-5000} $(GO) test ./plugin -run '^$$' -bench Withheld -benchtime 1x -timeout 2h
	cd scheduler && $(GO) test ./placement -run '^$$' -bench . -benchtime 20000x

.PHONY: test-flood
FLOOD ?= 2m
test-flood: ## as root: 1,500 hostile connections from 32 addresses for FLOOD (2m) keep no probe and no scrape out; a short one is part of test-fast
	QUIETCORE_CI=1 $(GO) test ./cmd/quietcore -count=1 -v -timeout 1h -run TestAFloodOfConnections -args -flood.for=$(FLOOD)

.PHONY: test-hostile
test-hostile: ## as root: play attacks of tenants, stolen tokens and floods on a real API server and on what runs on a node, and write docs/security/attacks.md: held, broken, what each costs; minutes; builds Kubernetes first
	@bin=$$($(GO) run ./e2e/kubernetes -build) && QUIETCORE_KUBERNETES_BIN=$$bin $(GO) run ./e2e/hostile -write docs/security/attacks.md

.PHONY: test-fleet
test-fleet: ## 500 simulated daemons, NODES=, and three real ones on a real API server: a policy in stages, a node that fails, the kill switch, the hub and kubectl quietcore: what each takes; three minutes; builds Kubernetes first
	@bin=$$($(GO) run ./e2e/kubernetes -build) && QUIETCORE_KUBERNETES_BIN=$$bin QUIETCORE_NODES=$(or $(NODES),500) \
		$(GO) test ./internal/fleet -count=1 -v -timeout 1h -run TestRealAPIServerMany

.PHONY: test-cpumanager # -vet=off: lint vets it
test-cpumanager: ## hold placement under kubelet's options against kubelet's own CPU manager
	cd hack/cpumanager && $(GO) test -count=1 -vet=off ./...

.PHONY: test-race
test-race: setup-test ## the same under the race detector
	CGO_ENABLED=1 QUIETCORE_CI=1 $(GO) test -race $(PACKAGES)

.PHONY: soak
soak: ## HOURS=1 of one daemon's life in a simulated world where everything goes wrong: memory, entries, state, goroutines and descriptors do not grow
	$(GO) test ./plugin -count=1 -timeout 0 -v -run TestSoak -args -soak.hours=$(or $(HOURS),1) $(if $(SEED),-soak.seed=$(SEED))

.PHONY: world world-replay
SEEDS ?= 100000
FROM ?= 1
world: ## play SEEDS lives of 300 choices, from seed FROM on, on all processors in a simulated world where everything goes wrong
	$(GO) test ./plugin -count=1 -timeout 0 -v -run TestTheWorldKeepsItsPromises -args -world.seeds=$(SEEDS) -world.from=$(FROM) -world.new=0
world-replay: SEEDS = 1000
world-replay: ## play 1,000 of them, SEEDS=, and replay each ten times on one processor and on two: it has to be the same run
	$(GO) test ./plugin -count=1 -timeout 0 -v -run TestASeedIsOneRun -args -world.same=$(SEEDS) -world.from=$(FROM) -world.again=10

.PHONY: test-vm
# TURN chooses half of the scenarios and the driver of each: four commits in a row play all of them with both.
TURN ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
test-vm: setup-vm build ## half of the scenarios, by turns (TURN=), through simulate and on a real runtime in virtual machines, with systemd and without; then counting on x86 and the quick proofs
	$(GO) run ./e2e -suite e2e/scenarios -driver alternate -turn $(TURN)
	$(GO) run ./e2e/counters -only x86
	$(GO) run ./e2e/counters -only isolated
	$(GO) run ./e2e/proof -driver systemd -only drift,crash,uninstall,doctor

.PHONY: e2e
e2e: setup-vm build ## every scenario with systemd and without it, on containerd 1.7 and CRI-O too, then the proofs, those on Kubernetes included: hours
	$(GO) run ./e2e -suite e2e/scenarios -driver both
	$(MAKE) test-counters
	$(MAKE) test-proof
	$(MAKE) e2e-runtimes
	$(MAKE) e2e-kubernetes

.PHONY: test-proof
test-proof: setup-vm ## prove in virtual machines that enforcement holds: windows, hotplug, drift, crashes, disorder, uninstalling, reserved CPUs first, a daemon that lacks descriptors, CPU and memory, a machine that is given CPUs or sleeps, containerd 1.7 that becomes 2.x
	$(GO) run ./e2e/proof -driver cgroupfs
	$(GO) run ./e2e/proof -driver systemd

.PHONY: test-interference
test-interference: setup-vm ## find and quiet an antagonist on a real kernel, and leave its plot behind: four minutes; NOISE=-unless-noisy where others may have the host's CPUs
	$(GO) run ./e2e/proof -driver systemd -only interference $(NOISE)

.PHONY: test-experiment
test-experiment: setup-vm ## the same by experiment, on a host that nobody loads: five minutes; EXPERIMENT=experiment-steady, -rotating, -same-hours or -move plays another
	$(GO) run ./e2e/proof -driver systemd -only $(or $(EXPERIMENT),experiment) $(NOISE)

.PHONY: test-counters
test-counters: ## how exact counting is, in virtual machines: against the kernel on x86 with Linux 5.10, 6.1 and 6.12, beside an isolated CPU, with a real PMU's events on arm64; writes the table of kernels
	@hack/setup qemu-system-x86 qemu-system-arm
	$(GO) run ./e2e/counters -write docs/evidence/counting.md

.PHONY: test-arm64
test-arm64: ## the tests of the core, which play all scenarios on paper, on an emulated arm64 machine with Linux 6.1: ten minutes
	@hack/setup qemu-system-x86 qemu-system-arm
	$(GO) run ./e2e/counters -only core-arm64

.PHONY: try-kernels
try-kernels: ## the table of kernels alone: what counting can do on Linux 5.10, 6.1, 6.12 and the host's, without the tests
	@hack/setup qemu-system-x86
	$(GO) run ./e2e/counters -tries -only x86-5.10,x86,x86-6.12,host -write docs/evidence/counting.md

.PHONY: e2e-runtimes
e2e-runtimes: setup-vm ## every scenario on containerd 1.7 and on CRI-O, which are built first: an hour and more
	$(GO) run ./e2e -suite e2e/scenarios -runtime containerd-1.7 -driver alternate
	$(GO) run ./e2e -suite e2e/scenarios -runtime crio -driver alternate

.PHONY: e2e-kernels
e2e-kernels: setup-vm ## every scenario and the quick proofs on Linux 5.10 and on 6.12, with systemd: 45 minutes
	$(GO) run ./e2e -suite e2e/scenarios -driver systemd -kernel bullseye
	$(GO) run ./e2e/proof -driver systemd -kernel bullseye -only drift,crash,uninstall,doctor
	$(GO) run ./e2e -suite e2e/scenarios -driver systemd -kernel trixie
	$(GO) run ./e2e/proof -driver systemd -kernel trixie -only drift,crash,uninstall,doctor

.PHONY: e2e-kubernetes
e2e-kubernetes: setup-vm ## the proofs on a real Kubernetes node: the control plane here, kubelet in a virtual machine; builds Kubernetes first
	$(GO) run ./e2e/kubernetes -driver systemd

.PHONY: e2e-random
e2e-random: setup-vm ## 500 random pods, PODS=, come and go on two nodes with real kubelets: what the scheduler told each is what its container has, and no node refuses one; an hour
	$(GO) run ./e2e/kubernetes -driver systemd -pods 2 -only scheduler -random $(or $(PODS),500)

.PHONY: e2e-mix
e2e-mix: setup-vm ## 1,000 random operations, OPERATIONS=, SEED= repeats one, on pods by annotation, pods that kubelet pins and claims, with deaths of daemon and kubelet: nobody shares a CPU, nothing is left; hours
	$(GO) run ./e2e/kubernetes -driver systemd -only mix -operations $(or $(OPERATIONS),1000) $(if $(SEED),-seed $(SEED))

.PHONY: e2e-soak
e2e-soak: setup-vm ## 1,000 real pods, PODS=, SEED= repeats them, come and go in waves on a node with a real kubelet: what the daemon holds when the node is empty does not grow; two hours
	$(GO) run ./e2e/kubernetes -driver systemd -only soak -soak $(or $(PODS),1000) $(if $(SEED),-seed $(SEED))

.PHONY: e2e-scheduler
e2e-scheduler: setup-vm ## the chart installed with its scheduler: a leader, a pod bound by one write, the other replica after the loss of the first, no right missing; builds its image first: six minutes
	$(GO) run ./e2e/kubernetes -driver systemd -pods 2 -only scheduler-chart

.PHONY: e2e-kubernetes-smoke
e2e-kubernetes-smoke: setup-vm ## the quick ones of them: refusals, a hostile tenant, the chart rolled out, what schedulers read, claims; attacks on a real API server
	$(GO) run ./e2e/kubernetes -driver systemd -pods 2 -only $(KUBERNETES_SMOKE)
	bin=$$($(GO) run ./e2e/kubernetes -build) && QUIETCORE_KUBERNETES_BIN=$$bin $(GO) test -count=1 -run 'TestRealAPIServer|TestAttacks' ./internal/lend ./internal/dra/driver ./internal/daemon ./internal/fleet ./internal/startuptaint ./e2e/hostile

.PHONY: setup-test setup-vm
setup-test:
	@hack/setup hwloc-nox prometheus chromium fonts-dejavu-core jq curl
setup-vm:
	@sh e2e/setup.sh

.PHONY: bench
bench: ## run the benchmarks and print one table with ratios
	@$(GO) run ./hack/bench

.PHONY: mutate # policy takes 40 minutes; ARGS="-n 100" fewer, ARGS="-- -short" tests less
mutate: ## change the package PKG (./policy) in 400 small ways, drawn by SEED (1), and see which ones its tests notice: 90 % have to be; an hour or more
	@$(GO) run ./hack/mutate -pkg $(or $(PKG),./policy) -seed $(or $(SEED),1) $(ARGS)

.PHONY: campaign
campaign: ## play what fleets meet, 60 scenarios, and write docs/evidence/campaign.md: ten minutes; PROOFS= files with what e2e/proof and e2e/kubernetes printed
	@$(GO) run ./hack/campaign -o docs/evidence/campaign.md $(PROOFS)

.PHONY: bench-vm
bench-vm: setup-vm ## measure enforcement with 500 containers in virtual machines, both drivers
	@$(GO) run ./e2e/bench

.PHONY: eval-cpi
eval-cpi: TRIALS ?= 50
eval-cpi: ## play the detectors of antagonists against machines whose truth is known: TRIALS=50 of each kind; GOOGLE=FILE adds real CPIs
	@$(GO) run ./hack/evalcpi -trials $(TRIALS) $(if $(GOOGLE),-google $(GOOGLE)) -write docs/evidence

.PHONY: bound-cpi
bound-cpi: ## 10,000 tests of innocents in each of four worlds: at most one in T may reach T; minutes
	@$(GO) test ./cpi/experiment -count=1 -v -run InnocentsReachT -timeout 2h -bound-tests 20000

.PHONY: eval-reclaim
eval-reclaim: ## play the estimator of idle CPUs on recorded data: TRACES=DIR
	@$(GO) run ./hack/evalreclaim $(if $(TRACES),-traces $(TRACES)) -write

.PHONY: pmu-check
pmu-check: ## on a machine with a PMU, as root: find and cap an antagonist by real counters, and print what was seen; minutes
	$(GO) build -o bin/pmucheck ./hack/pmucheck
	bin/pmucheck

.PHONY: image
image: ## write bin/quietcore-image.tar: an OCI archive for amd64 and arm64
	@mkdir -p bin
	cd hack/image && $(GO) run . -version $(VERSION) -o ../../bin/quietcore-image.tar

.PHONY: image-scheduler
image-scheduler: ## write bin/quietcore-scheduler-image.tar, the same of the scheduler; compiles Kubernetes' scheduler for both first: minutes
	@mkdir -p bin
	cd hack/image && $(GO) run . -scheduler -version $(VERSION) -o ../../bin/quietcore-scheduler-image.tar

.PHONY: chart # lint vets it; here that would be every package of Kubernetes once more
chart: setup-test ## lint, render, kubeconform and helm-unittest the chart, judge its rights and policies; test the builders of images and releases
	@# What they read lies outside of their modules, where a change makes Go try nothing again: -count=1.
	cd hack/chart && QUIETCORE_CI=1 $(GO) test -count=1 -vet=off ./...
	cd hack/image && $(GO) test -count=1 ./...
	cd hack/release && $(GO) test -count=1 ./...

.PHONY: push
push: image ## push bin/quietcore-image.tar, and the chart that runs it, to REGISTRY, such as 127.0.0.1:5000/quietcore: unsigned, for trials
	cd hack/release && $(GO) run . push -version $(VERSION) -registry $(REGISTRY)

.PHONY: release release-publish release-trust release-twice release-smoke licences vulncheck vulncheck-scheduler changelog
release: ## make VERSION (v0.1.0) of HEAD in dist/, for REGISTRY (HOST/PATH): binaries, images, chart, notices, bills of materials, changelog, checksums; its provenance in dist-signatures/
	cd hack/release && $(GO) run . build -version $(VERSION) -registry '$(REGISTRY)' -o ../../dist
	cd hack/release && $(GO) run . provenance -dist ../../dist
release-publish: ## push, sign and attest what is in dist/, and verify it; PUBLISH says who signs: docs/releasing.md
	cd hack/release && $(GO) run . publish -dist ../../dist $(PUBLISH)
release-trust: ## publish a release of HEAD on loopback by a key of its own, verify it, and attack it; TRUST="-draft -no-scheduler" makes less, "-tools DIR" takes cosign and helm of DIR; else it compiles cosign and syft first: half an hour
	cd hack/release && $(GO) run . trust $(TRUST)
release-twice: ## build HEAD twice in different surroundings and compare; minutes
	cd hack/release && $(GO) run . twice
release-smoke: ## the short form of it
	cd hack/release && $(GO) run . twice -draft -no-scheduler -warm
licences: ## what is linked, and under which licence; fails where one is not allowed
	cd hack/release && $(GO) run . licences
	cd hack/release && $(GO) run . licences -source ../../scheduler
vulncheck: ## known vulnerabilities in what is called; GOVULNDB names another database; fails where none answers
	cd hack/release && $(GO) run . vulncheck $(VULNCHECK)
vulncheck-scheduler: ## the same of quietcore-scheduler, whose packages are Kubernetes': minutes
	cd hack/release && $(GO) run . vulncheck -source ../../scheduler $(VULNCHECK)
changelog: ## put VERSION into CHANGELOG.md
	cd hack/release && $(GO) run . changelog -version $(VERSION) -write

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, in every module; the workflow; the width, words and sentences of the docs
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "not gofmt-ed: run gofmt -w"; exit 1; }
	$(GO) vet $(PACKAGES)
	$(GO) run $(STATICCHECK) $(PACKAGES)
	$(GO) run $(ACTIONLINT)
	$(GO) run ./hack/prose
	@set -e; for m in $(MODULES); do echo "vet and staticcheck $$m"; (cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); done

.PHONY: generate
generate: ## rewrite what is derived: the eBPF objects; results of scripts in docs/semantics and internal/script/testdata; the tables of docs/metrics.md and docs/security/dependencies.md; the chart's schema, table of values and table of rights
	@hack/setup clang llvm libbpf-dev
	$(GO) generate $(PACKAGES)
	$(GO) test ./internal/script -run TestSemantics -update
	$(GO) test ./internal/dashboards -run Derived -update
	cd hack/chart && $(GO) test -vet=off . -run 'Derived|WhatIsInstalled' -update
	cd hack/image && $(GO) run . -weights

.PHONY: check-generate
check-generate: generate ## fail if generated files were not committed
	git diff --exit-code -- $(GENERATED)
	@new="$$(git ls-files --others --exclude-standard -- $(GENERATED))"; test -z "$$new" || { echo "generated and not committed: $$new"; exit 1; }

.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME each (default 20s; 500x counts runs); FUZZSHARE=3: a third of them
	@FUZZTIME=$(FUZZTIME) FUZZSHARE=$(FUZZSHARE) GO=$(GO) hack/fuzz

.PHONY: corpus
corpus: ## keep what make fuzz found: the fewest inputs that reach the same code, in testdata/fuzz, where every test run plays them; half an hour
	@$(GO) run ./hack/corpus

.PHONY: clean
clean: ## remove build results and the cache of virtual machines
	rm -rf bin dist dist-signatures .cache
