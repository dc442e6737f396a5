// Mutants breaks the program in one place at a time and says whether a test sees
// it (mutation testing; DeMillo, Lipton and Sayward, 1978). list.go and its
// neighbours have the places. Changed copies of functions are put over the sources
// by go test's -overlay, so that the sources stay as they are.
//
// usage: go run ./internal/mutants [-run REGEXP] [-gpu] [-list] [-timeout D] [-v]
//
// It prints a line for each: killed, with the first test that failed, or survived.
// The status is 1 when one survived, does not build, or when its text is not in
// the sources any more.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is one change. Its text is looked for in all sources that are no tests,
// so that it goes along when a function moves to another file.
type mutant struct {
	name string // what the program does wrong with it
	old  string // whole lines, which only one place has; the space around each does not matter
	now  string // what takes their place
	in   string // the package whose tests run, from the root of the module; "": that of the file
	run  string // the tests, for go test's -run; "": all
	tags string // build tags
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	names := flag.String("run", "", "only mutants whose names match the regular `expression`")
	gpu := flag.Bool("gpu", false, "the mutants that are built with -tags gpu, which takes internal/fakecuda/run.sh or CUDA, and no others")
	only := flag.Bool("list", false, "say where the mutants are, and run none")
	timeout := flag.Duration("timeout", time.Minute, "for the tests of one mutant; one that exceeds it is killed")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	match, err := regexp.Compile(*names)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(list), func(m mutant) bool { return !match.MatchString(m.name) || (m.tags == "gpu") != *gpu })
	src, err := readSources(".")
	if err != nil {
		return err
	}
	b := bench{src: src, timeout: *timeout, verbose: *verbose}
	if b.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if !*only {
		if err := b.build(chosen); err != nil {
			return err
		}
	}
	count := map[string]int{}
	for _, m := range chosen {
		result, detail := "is at", ""
		if *only {
			if detail, err = src.place(m); err != nil {
				result, detail = "lost", err.Error()
			}
		} else {
			result, detail = b.try(m)
		}
		count[result]++
		fmt.Printf("%-9s %s: %s\n", result, m.name, detail)
	}
	for _, r := range []string{killed, survived, broken, lost} {
		if count[r] > 0 {
			fmt.Printf("%d %s\n", count[r], r)
		}
	}
	if bad := count[survived] + count[broken] + count[lost]; bad > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", bad, len(chosen))
	}
	return nil
}

// What comes of a mutant.
const (
	killed   = "killed"
	survived = "survived"
	broken   = "no build"
	lost     = "lost" // its text is not in the sources, or more than once, or it has no test
)

// sources are the lines of the module's files that are no tests.
type sources map[string][]string

func readSources(root string) (sources, error) {
	src := sources{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != root || e.Name() == "testdata" || filepath.ToSlash(path) == "internal/mutants"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		src[path] = strings.Split(string(text), "\n")
		return err
	})
	return src, err
}

// find returns the file that has a mutant's text, and its first line, from 0.
func (src sources) find(m mutant) (file string, at int, err error) {
	old := linesOf(m.old)
	found := 0
	for name, lines := range src {
		for i := 0; i+len(old) <= len(lines); i++ {
			if same(lines[i:i+len(old)], old) {
				file, at = name, i
				found++
			}
		}
	}
	switch found {
	case 0:
		return "", 0, errors.New("no file has its text")
	case 1:
		return file, at, nil
	}
	return "", 0, fmt.Errorf("its text is in %d places", found)
}

// place is find for people.
func (src sources) place(m mutant) (string, error) {
	file, at, err := src.find(m)
	return fmt.Sprintf("%s:%d", file, at+1), err
}

// change returns a file with a mutant's change, and its text.
func (src sources) change(m mutant) (file, text string, err error) {
	file, at, err := src.find(m)
	if err != nil {
		return "", "", err
	}
	lines := src[file]
	changed := slices.Concat(lines[:at], linesOf(m.now), lines[at+len(linesOf(m.old)):])
	return file, strings.Join(changed, "\n"), nil
}

// linesOf returns the lines of a text without those that are empty at its ends.
func linesOf(text string) []string {
	text = strings.Trim(text, "\n\t ")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// same reports whether lines are the same but for the space around each.
func same(a, b []string) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool { return strings.TrimSpace(x) == strings.TrimSpace(y) })
}
