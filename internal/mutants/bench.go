package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench runs tests, over sources with a change.
type bench struct {
	src     sources
	dir     string // for the files that are made
	timeout time.Duration
	verbose bool

	all    []mutant // that were built; a mutant's number is its place, from 1
	groups []*group
	files  int // written to dir so far
}

// group is the mutants whose tests are in one package, with the same build tags.
type group struct {
	in, tags string
	mutants  []mutant
	alone    []mutant // of them, those that are not inside one function
	binary   string   // of the tests, with a changed copy of each function; "": none could be built
}

// packageOf returns the package whose tests run for a mutant in a file.
func (m mutant) packageOf(file string) string {
	return cmp.Or(m.in, filepath.ToSlash(filepath.Dir(file)))
}

// build builds the tests of mutants, and runs them without a change, so that one
// that fails anyway is not taken for a mutant's.
func (b *bench) build(all []mutant) error {
	b.all, b.groups = all, nil
	for _, m := range all {
		file, _, err := b.src.find(m)
		if err != nil {
			continue // try says so
		}
		in := m.packageOf(file)
		i := slices.IndexFunc(b.groups, func(g *group) bool { return g.in == in && g.tags == m.tags })
		if i < 0 {
			i = len(b.groups)
			b.groups = append(b.groups, &group{in: in, tags: m.tags})
		}
		b.groups[i].mutants = append(b.groups[i].mutants, m)
	}
	for _, g := range b.groups {
		var names []string
		for _, m := range g.mutants {
			names = append(names, cmp.Or(m.run, "."))
		}
		run := strings.Join(names, "|")
		overlay, err := b.overlay(g)
		if err != nil {
			return err
		}
		binary, _, err := b.compile(g, overlay)
		if err == nil {
			g.binary = binary
		} else if unchanged, out, err := b.compile(g, ""); err != nil {
			return fmt.Errorf("the tests of ./%s cannot be built:\n%s", g.in, out)
		} else {
			binary = unchanged
		} // else a mutant is no program: try finds which
		if out, err := b.test(binary, g.in, 0, run, 10*time.Minute); err != nil {
			return fmt.Errorf("./%s -test.run=%s fails without a change:\n%s", g.in, run, out)
		} else if strings.Contains(out, noTests) {
			return fmt.Errorf("./%s -test.run=%s runs no test", g.in, run)
		}
	}
	return nil
}

// noTests is in what a test binary prints when nothing matches -test.run.
const noTests = "no tests to run"

// overlay writes what go's -overlay takes, for mutants that are built together.
func (b *bench) overlay(g *group) (string, error) {
	schemata := map[string]*schema{}
	for _, m := range g.mutants {
		file, at, err := b.src.find(m)
		if err != nil {
			return "", err
		}
		s := schemata[file]
		if s == nil {
			if s, err = newSchema(b.src[file]); err != nil {
				return "", err
			}
			schemata[file] = s
		}
		_, text, err := b.src.change(m)
		if err != nil {
			return "", err
		}
		if s.add(b.number(m), at, len(linesOf(m.old)), text) != nil {
			g.alone = append(g.alone, m)
		}
	}
	texts := map[string]string{}
	for file, s := range schemata {
		texts[file] = s.String()
		texts[filepath.Join(filepath.Dir(file), "mutant_on.go")] = fmt.Sprintf(switchFile, s.file.Name.Name)
	}
	return b.write(texts)
}

// together returns the tests with a mutant among others, or "" when it has to be
// built alone.
func (b *bench) together(m mutant, in string) string {
	i := slices.IndexFunc(b.groups, func(g *group) bool { return g.in == in && g.tags == m.tags })
	if i < 0 || !slices.Contains(b.groups[i].mutants, m) || slices.Contains(b.groups[i].alone, m) {
		return ""
	}
	return b.groups[i].binary
}

// number returns the number of a mutant, 0 for one that was not built with others.
func (b *bench) number(m mutant) int { return 1 + slices.Index(b.all, m) }

// write writes files and what makes go take them for those of the module.
func (b *bench) write(texts map[string]string) (overlay string, err error) {
	replace := map[string]string{}
	for file, text := range texts {
		abs, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		b.files++
		replace[abs] = filepath.Join(b.dir, strconv.Itoa(b.files)+".go")
		if err := os.WriteFile(replace[abs], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	b.files++
	overlay = filepath.Join(b.dir, strconv.Itoa(b.files)+".json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}

// compile builds the tests of a group and returns the binary, and what go printed.
func (b *bench) compile(g *group, overlay string) (binary, out string, err error) {
	b.files++
	binary = filepath.Join(b.dir, strconv.Itoa(b.files)+".test")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-tags=" + g.tags, "-overlay=" + overlay, "-o=" + binary, "./" + g.in}
	text, err := exec.Command("go", args...).CombinedOutput()
	if _, e := os.Stat(binary); err == nil && e != nil {
		err = e // the package has no tests
	}
	return binary, string(text), err
}

// test runs tests with a mutant, 0 for none, and returns what they printed.
func (b *bench) test(binary, in string, number int, run string, timeout time.Duration) (string, error) {
	cmd := exec.Command(binary, "-test.failfast", "-test.timeout="+timeout.String(), "-test.run="+run)
	cmd.Dir = filepath.FromSlash(in)
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(number))
	out, err := cmd.CombinedOutput()
	if b.verbose {
		os.Stdout.Write(out)
	}
	return string(out), err
}

// try runs the tests of a mutant, and returns what came of it, and why.
func (b *bench) try(m mutant) (result, detail string) {
	file, text, err := b.src.change(m)
	if err != nil {
		return lost, err.Error()
	}
	g := group{in: m.packageOf(file), tags: m.tags}
	if g.binary = b.together(m, g.in); g.binary == "" {
		overlay, err := b.write(map[string]string{file: text})
		if err != nil {
			return broken, err.Error()
		}
		var out string
		if g.binary, out, err = b.compile(&g, overlay); err != nil {
			return broken, out
		}
		defer os.Remove(g.binary)
	}
	began := time.Now()
	out, err := b.test(g.binary, g.in, b.number(m), cmp.Or(m.run, "."), b.timeout)
	took := time.Since(began).Round(100 * time.Millisecond)
	var status *exec.ExitError
	switch {
	case err == nil && strings.Contains(out, noTests):
		return lost, fmt.Sprintf("-test.run=%s runs no test of ./%s", m.run, g.in)
	case err == nil:
		return survived, fmt.Sprintf("./%s -test.run=%s (%v)", g.in, m.run, took)
	case !errors.As(err, &status):
		return broken, err.Error()
	}
	return killed, fmt.Sprintf("%s (%v)", reason(out), took)
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
		return m
	}
	return "the tests fail"
}
