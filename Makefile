# What a developer runs. CI runs .ci/run, which is all of check and test.
.PHONY: check test fuzz bench bench-peers gpu plot pgo
SHELL = bash
.SHELLFLAGS = -e -o pipefail -c

FUZZTIME ?= 1m
COUNT ?= 10
CPUS ?= 1,2,4,8,16
BENCH = go test -run '^$$' -benchmem -timeout 4h
BENCHSTAT = golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

check: ## formatting, vet, staticcheck
	test -z "$$(gofmt -l .)"
	go vet ./...
	GOOS=darwin go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...

test: ## plain, with the race detector, with the invariant-checking build
	go test ./...
	go test -race ./...
	go test -tags invariants ./...

fuzz: ## random programs against an oracle
	go test -tags invariants -run '^$$' -fuzz FuzzCaching -fuzztime $(FUZZTIME) .
	go test -run '^$$' -fuzz FuzzParseAllocConf -fuzztime $(FUZZTIME) .

bench: ## every benchmark, summed up by benchstat; CUPOOL_DEVICE=cuda and GOFLAGS=-tags=gpu for a GPU
	$(BENCH) -bench . -skip '^BenchmarkParallelHit$$' -count $(COUNT) . | tee bench.out
	$(BENCH) -bench '^BenchmarkParallelHit$$' -cpu $(CPUS) -count $(COUNT) . | tee -a bench.out
	go run $(BENCHSTAT) bench.out

bench-peers: ## ours beside PyTorch's allocator and cudaMallocAsync on a GPU; the script says what it takes
	bench/peers.sh

gpu: ## everything that docs/gpu-validation.md reports, on this machine's GPU
	bench/validate.sh

plot: ## docs/live.svg: the time of a step by the number of live blocks
	$(BENCH) -bench '^BenchmarkLive' -count $(COUNT) . | tee live.out
	go run ./bench/plot docs/live.svg live.out

pgo: ## the profile that "cupool pgo" prints: what to make fast, for Go's compiler
	$(BENCH) -trimpath -benchtime 3s -o cupool.test -cpuprofile pool.prof \
		-bench '^Benchmark(Hit|ParallelHit|RandomLive1000|CrossStream|MissSplit|Trim1000)$$' .
	$(BENCH) -trimpath -benchtime 3s -o cupool.test -cpuprofile engine.prof \
		-bench '^BenchmarkEngineAllocFree$$/^zeroing=off$$/^bytes=1048576$$' .
	go tool pprof -proto -focus cupool/cupool -output cmd/cupool/cupool.pgo pool.prof engine.prof
