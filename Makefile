# What a developer runs. CI runs .ci/run, which is all of check and test.
.PHONY: check test fuzz bench

FUZZTIME ?= 1m
COUNT ?= 10

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

bench: ## every benchmark, summed up by benchstat
	go test -run '^$$' -bench . -benchmem -count $(COUNT) . | tee bench.out
	go run golang.org/x/perf/cmd/benchstat@latest bench.out
