// Mutants breaks a package in one place at a time and says which breaks no test
// sees (mutation testing; DeMillo, Lipton and Sayward, 1978).
//
// usage: go run ./cmd/mutants [-n N] [-seed S] [-tests PACKAGES] [-against FILE] PACKAGE...
//
// Operators make the breaks: see operators.go. All those of a package are built
// at once behind one switch (mutant schemata; Untch, Offutt and Harrold, 1993),
// over the sources by go's -overlay, which stay as they are. Each mutant then runs
// with the tests that reach it alone.
//
// It prints a line for each mutant, with tabs between the columns: what came of it,
// the package, the function, the operator, the text that it changes, which of the
// same in the function it is, and, for people, the place and the test that failed.
// A mutant that no test kills and that survivors.txt gives a reason for is argued.
// With -against, it runs the mutants that such lines name as killed, and the status
// is 1 when one survives.
package main

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	flag.IntVar(&o.n, "n", 200, "how many mutants of each package; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "which mutants: the same seed chooses the same, also after most changes of the sources")
	flag.Func("run", "only mutants whose lines match the regular `expression`", func(s string) (err error) {
		o.match, err = regexp.Compile(s)
		return err
	})
	tests := flag.String("tests", "", "the `packages`, with commas, whose tests run; empty: the mutants' own")
	flag.StringVar(&o.tags, "tags", "", "build tags")
	flag.IntVar(&o.jobs, "p", 2, "how many test processes at once")
	flag.DurationVar(&o.slow, "slow", time.Minute, "leave out tests that take longer alone")
	against := flag.String("against", "", "run the mutants that were killed in this `file`, which a run printed")
	flag.StringVar(&o.renamed, "renamed", "", "words that changed since the file of -against was made, as `Old=New`, with commas")
	flag.Parse()
	if flag.NArg() == 0 {
		return errors.New("name a package, such as ./internal/heap")
	}
	if *against != "" {
		var err error
		if o.wanted, err = readKilled(*against, o.renamed); err != nil {
			return err
		}
	}
	failed := false
	for _, pkg := range flag.Args() {
		in := []string{pkg}
		if *tests != "" {
			in = strings.Split(*tests, ",")
		}
		survivors, err := o.mutate(pkg, in)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		failed = failed || survivors > 0 && *against != ""
	}
	if failed {
		return errors.New("mutants survive that were killed before")
	}
	return nil
}

type options struct {
	n       int
	seed    uint64
	match   *regexp.Regexp // nil: all
	renamed string
	tags    string
	jobs    int
	slow    time.Duration
	wanted  map[string]bool // keys; nil: a sample of all
}

// mutate runs the mutants of one package with the tests of some, and returns how
// many survived.
func (o options) mutate(pkg string, tests []string) (survivors int, err error) {
	s, err := load(pkg, o.tags)
	if err != nil {
		return 0, err
	}
	if err := s.keepCompiling(); err != nil {
		return 0, err
	}
	chosen := o.choose(s)
	b, err := newBench(s, tests, o)
	if err != nil {
		return 0, err
	}
	defer b.close()
	if err := b.learn(); err != nil {
		return 0, err
	}
	count, reasons := map[string]int{}, argued()
	b.try(chosen, func(m *mutant, result, detail string) {
		if reason := reasons[m.key()]; reason != "" && result != killed {
			result, detail = equivalent, reason
		}
		count[result]++
		fmt.Printf("%s\t%s\t%s\t%s\n", result, m.key(), m.place, detail)
	})
	fmt.Fprintf(os.Stderr, "%s: %d mutants, of which %d ran: %d killed, %d argued, %d survived, %d reached by no test\n",
		s.path, len(s.mutants), len(chosen), count[killed], count[equivalent], count[survived], count[unreached])
	return count[survived] + count[unreached], nil
}

// What comes of a mutant.
const (
	killed     = "killed"
	survived   = "survived"
	unreached  = "unreached"
	equivalent = "argued" // it survives for a reason
)

//go:embed survivors.txt
var survivors string

// module is where the packages of survivors.txt are; "." is its root.
const module = "github.com/cupool/cupool"

// argued returns the reasons of survivors.txt by the keys of mutants.
func argued() map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(survivors) {
		if columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(columns) == 6 {
			reasons[strings.Join(append([]string{path.Join(module, columns[0])}, columns[1:5]...), "\t")] = columns[5]
		}
	}
	return reasons
}

// choose returns the mutants that were asked for, or a sample: those whose keys
// have the smallest hashes, which is the same sample while the keys stay.
func (o options) choose(s *schema) []*mutant {
	matches := func(key string) bool { return o.match == nil || o.match.MatchString(key) }
	chosen := slices.DeleteFunc(slices.Clone(s.mutants), func(m *mutant) bool {
		return !matches(m.key()) || o.wanted != nil && !o.wanted[m.key()]
	})
	if o.wanted != nil {
		lost := 0
		for key := range o.wanted {
			if strings.HasPrefix(key, s.path+"\t") && matches(key) && !slices.ContainsFunc(chosen, func(m *mutant) bool { return m.key() == key }) {
				fmt.Printf("gone\t%s\n", key)
				lost++
			}
		}
		fmt.Fprintf(os.Stderr, "%s: of the file's mutants, %d are no longer there\n", s.path, lost)
		return chosen
	}
	rank := func(m *mutant) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\t%s", o.seed, m.key())
		return h.Sum64()
	}
	slices.SortFunc(chosen, func(a, b *mutant) int { return cmp.Compare(rank(a), rank(b)) })
	if o.n > 0 && len(chosen) > o.n {
		chosen = chosen[:o.n]
	}
	return chosen
}

// readKilled returns the keys of the mutants that a run printed as killed, with
// words in place of others.
func readKilled(file, renamed string) (map[string]bool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := string(data)
	if renamed != "" {
		for _, r := range strings.Split(renamed, ",") {
			before, after, ok := strings.Cut(r, "=")
			if !ok {
				return nil, fmt.Errorf("-renamed: %q has no =", r)
			}
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(before)+`\b`).ReplaceAllLiteralString(text, after)
		}
	}
	keys := map[string]bool{}
	for line := range strings.Lines(text) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if columns[0] == killed && len(columns) > 5 {
			keys[strings.Join(columns[1:6], "\t")] = true
		}
	}
	return keys, nil
}
