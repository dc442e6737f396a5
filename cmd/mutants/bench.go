package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory is what a test process may have, in KiB, without what it maps of files or
// only reserves: a mutant may ask for more and more.
const memory = 16 << 20

// bench runs the tests of some packages over a schema.
type bench struct {
	options
	schema *schema
	dir    string // for the files that are made
	tests  []*test
}

// test is one that is named alone.
type test struct {
	binary, in, name string
	took             time.Duration
	reaches          []byte // for the number of each mutant: 1 where it does
	out              bool   // it fails without a mutant, or takes too long
}

// newBench builds the tests of packages over a schema.
func newBench(s *schema, packages []string, o options) (_ *bench, err error) {
	b := &bench{options: o, schema: s}
	if b.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	replace := map[string]string{}
	for path, text := range s.overlay() {
		replace[path] = filepath.Join(b.dir, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return nil, err
	}
	all, err := goList(append([]string{"-tags=" + o.tags}, packages...)...)
	if err != nil {
		return nil, err
	}
	for i, p := range all {
		binary := filepath.Join(b.dir, strconv.Itoa(i)+".test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-tags="+o.tags, "-overlay="+overlay, "-o="+binary, p.ImportPath)
		build.Dir = p.Dir
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the tests of %s with all mutants: %w\n%s", p.ImportPath, err, out)
		}
		if _, err := os.Stat(binary); err != nil {
			continue // it has no tests
		}
		cmd := exec.Command(binary, "-test.list=.")
		cmd.Dir = p.Dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("the names of the tests of %s: %w", p.ImportPath, err)
		}
		for name := range strings.Lines(string(out)) {
			if name = strings.TrimSpace(name); !strings.HasPrefix(name, "Benchmark") {
				b.tests = append(b.tests, &test{binary: binary, in: p.Dir, name: name})
			}
		}
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.dir) }

// learn runs each test alone, without a mutant, and notes what it reaches and how
// long it takes.
func (b *bench) learn() error {
	b.each(len(b.tests), func(i int) {
		t := b.tests[i]
		record := filepath.Join(b.dir, fmt.Sprintf("reached%d", i))
		if err := os.WriteFile(record, make([]byte, len(b.schema.mutants)+1), 0o600); err != nil {
			t.out = true
			return
		}
		began := time.Now()
		out, err := b.run([]*test{t}, b.slow, recordVariable+"="+record)
		t.took = time.Since(began)
		if err != nil {
			t.out = true
			fmt.Fprintf(os.Stderr, "left out: %s: %v: %s\n", t.name, err, reason(out))
			return
		}
		if t.reaches, err = os.ReadFile(record); err != nil {
			t.out = true
		}
		os.Remove(record)
	})
	if !slices.ContainsFunc(b.tests, func(t *test) bool { return !t.out }) {
		return errors.New("no test passes without a mutant")
	}
	return nil
}

// each calls do for the numbers below n, some at once.
func (b *bench) each(n int, do func(i int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range b.jobs {
		group.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// run runs tests of one binary with a variable of the environment.
func (b *bench) run(tests []*test, limit time.Duration, variable string) (string, error) {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	shell := fmt.Sprintf("ulimit -d %d; exec \"$@\"", memory)
	cmd := exec.CommandContext(ctx, "sh", "-c", shell, "sh", tests[0].binary,
		"-test.failfast", "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir = tests[0].in
	cmd.Env = append(os.Environ(), variable)
	cmd.WaitDelay = 5 * time.Second // processes that the tests started may hold the output
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// try runs each mutant with the tests that reach it, and says what came of it.
func (b *bench) try(mutants []*mutant, say func(m *mutant, result, detail string)) {
	var mu sync.Mutex
	b.each(len(mutants), func(i int) {
		result, detail := b.tryOne(mutants[i])
		mu.Lock()
		defer mu.Unlock()
		say(mutants[i], result, detail)
	})
}

func (b *bench) tryOne(m *mutant) (result, detail string) {
	var reaching []*test
	for _, t := range b.tests {
		if !t.out && t.reaches[m.number] == 1 {
			reaching = append(reaching, t)
		}
	}
	if len(reaching) == 0 {
		return unreached, ""
	}
	for _, batch := range batches(reaching) {
		var took time.Duration
		for _, t := range batch {
			took += t.took
		}
		if out, err := b.run(batch, 10*time.Second+5*took, variable+"="+strconv.Itoa(m.number)); err != nil {
			return killed, reason(out)
		}
	}
	return survived, fmt.Sprintf("%d tests reach it", len(reaching))
}

// batches groups tests that run in one process: the quick ones first, and so few
// that one that hangs is soon known.
func batches(tests []*test) (all [][]*test) {
	slices.SortStableFunc(tests, func(x, y *test) int { return cmp.Compare(x.took, y.took) })
	byBinary := map[string][]*test{}
	for _, t := range tests {
		byBinary[t.binary] = append(byBinary[t.binary], t)
	}
	for _, binary := range slices.Sorted(maps.Keys(byBinary)) {
		limit, took := time.Second, time.Duration(0)
		var batch []*test
		for _, t := range byBinary[binary] {
			if len(batch) > 0 && took+t.took > limit {
				all = append(all, batch)
				batch, took, limit = nil, 0, 5*time.Second
			}
			batch, took = append(batch, t), took+t.took
		}
		all = append(all, batch)
	}
	return all
}

var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crashed = regexp.MustCompile(`(?m)^(panic|fatal error|runtime error): .*`)
)

// reason returns the test that failed, or what ended the process.
func reason(out string) string {
	if m := failed.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if m := crashed.FindString(out); m != "" {
		return m[:min(len(m), 80)]
	}
	return "the tests fail"
}
