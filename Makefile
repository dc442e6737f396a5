# What a developer runs. CI runs .ci/run.
.PHONY: check test race browser arm64 soak fuzz bench compare bench-peers gpu plot pgo mutants
SHELL = bash
.SHELLFLAGS = -e -o pipefail -c

FUZZTIME ?= 1m
SOAKTIME ?= 1h
SOAKDEVICE ?= host:2GiB
COUNT ?= 10
CPUS ?= 1,2,4,8,16
BENCH = go test -run '^$$' -benchmem -timeout 4h
BENCHSTAT = golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

check: ## formatting, vet, staticcheck
	test -z "$$(gofmt -l .)"
	go vet work
	for os in darwin windows; do GOOS=$$os go vet work; done
	go run honnef.co/go/tools/cmd/staticcheck@v0.7.0 work

test: ## the tests of every module; CUPOOL_TEST=long for the long forms
	go test work

race: ## with the race detector and the invariant-checking build
	go test -race -tags invariants work

browser: ## the debug page in Chromium
	go test -tags browser ./cmd/internal/pagetest

arm64: ## the tests of what depends on the order of loads and stores, under qemu-aarch64 (Debian: qemu-user)
	for p in addrmap block callstack magazine ledger epoch vmem heap hostdev/handles hostdev/vspace hostdev simdev; do \
		GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go test -exec qemu-aarch64 -timeout 60m ./internal/$$p; done

soak: ## everything at once for SOAKTIME, on a device such as SOAKDEVICE=cuda
	go run ./cmd/soak -device $(SOAKDEVICE) -duration $(SOAKTIME) -out soak.jsonl

fuzz: ## every fuzz target in turn, FUZZTIME each, round after round until one fails; ROUNDS=1 for one round
	bench/fuzz.sh $(FUZZTIME) $(ROUNDS)

bench: ## every benchmark, summed up by benchstat; CUPOOL_DEVICE=cuda for a GPU
	$(BENCH) -bench . -skip '^BenchmarkParallelHit$$' -count $(COUNT) . | tee bench.out
	$(BENCH) -bench '^BenchmarkParallelHit$$' -cpu $(CPUS) -count $(COUNT) . | tee -a bench.out
	go run $(BENCHSTAT) bench.out

compare: ## the benchmarks of docs/performance.md of this tree beside those of BASE, a revision, in turn
	BENCHSTAT=$(BENCHSTAT) bench/compare.sh "$(or $(BASE),$(error make compare BASE=revision))" $(HEAD)

bench-peers: ## ours beside PyTorch's allocator and cudaMallocAsync on a GPU; the script says what it takes
	bench/peers.sh

gpu: ## everything that docs/gpu-validation.md reports, on this machine's GPU
	bench/validate.sh

plot: ## docs/live.svg: the time of a step by the number of live blocks
	$(BENCH) -bench '^BenchmarkLive' -count $(COUNT) . | tee live.out
	go run ./bench/live docs/live.svg <live.out

pgo: ## the profile that "cupool pgo" prints: what to make fast, for Go's compiler
	$(BENCH) -trimpath -benchtime 3s -o cupool.test -cpuprofile pool.prof \
		-bench '^Benchmark(Hit|ParallelHit|RandomLive1000|CrossStream|MissSplit|Trim1000)$$' .
	$(BENCH) -trimpath -benchtime 3s -o cupool.test -cpuprofile engine.prof \
		-bench '^BenchmarkEngineAllocFree$$/^zeroing=off$$/^bytes=1048576$$' .
	go tool pprof -proto -focus cupool/cupool -output cmd/cupool/cupool.pgo pool.prof engine.prof

mutants: ## breaks packages in one place at a time, and says which breaks no test sees: PKG="./nn ./ipc"
	go run ./cmd/mutants $(or $(PKG),./internal/block ./internal/epoch ./internal/heap .)
