package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// short is a mutant's function, operator and text, and which of the same it is.
func short(m *mutant) string {
	_, key, _ := strings.Cut(m.key(), "\t")
	return strings.ReplaceAll(key, "\t", " ")
}

// Over a toy package: what tests see is killed, what they only reach survives, and
// what none reaches is named. All compiles, whatever the forms.
func TestToy(t *testing.T) {
	s, err := load("./testdata/toy", "")
	require.NoError(t, err)
	require.NoError(t, s.keepCompiling())
	o := options{jobs: 2, slow: 60e9}
	b, err := newBench(s, []string{"./testdata/toy"}, o)
	require.NoError(t, err)
	defer b.close()
	require.NoError(t, b.learn())

	results := map[string]string{}
	b.try(o.choose(s), func(m *mutant, result, detail string) { results[short(m)] = result })
	for want, keys := range map[string][]string{
		killed: {
			"(*stack).push off s.n >= limit 1",
			"(*stack).push negate s.n >= limit 1",
			"(*stack).push drop s.n++ 1",
			"(*stack).push drop return false 1",
			"(*stack).pop negate s.n > 0 1",
			"(*stack).note drop s.log.WriteString(a) 1",
			"(*stack).note swap s.log.WriteString(a) s.log.WriteString(b) 1",
			`(*stack).both swap "x", "y" 1`,
			"sum off i < n 1",
			"sum negate i < n 1",
			"sum drop total += i 1",
			"kind off 1 1",
			"kind drop return \"one\" 1",
		},
		survived:  {"(*stack).pop off s.n > 0 1", "(*stack).pop off 1 1"},
		unreached: {"unused off 3 1"},
	} {
		for _, key := range keys {
			require.Equal(t, want, results[key], key)
		}
	}
	require.NotContains(t, results, "kind drop return \"int\" 1", "without it, the function would have no end")
}

// What was made before something fails goes: the tests of a package take hundreds of MiB.
func TestNothingIsLeft(t *testing.T) {
	s, err := load("./testdata/toy", "")
	require.NoError(t, err)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	_, err = newBench(s, []string{"./nowhere"}, options{})
	require.Error(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Each line of survivors.txt is of a mutant that there is, and has a reason.
func TestSurvivors(t *testing.T) {
	byPackage := map[string][]string{}
	for key, reason := range argued() {
		require.NotEmpty(t, reason, key)
		pkg, _, _ := strings.Cut(key, "\t")
		byPackage[pkg] = append(byPackage[pkg], key)
	}
	lines := 0
	for line := range strings.Lines(survivors) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	require.Len(t, argued(), lines, "each line has six columns, and no two are of one mutant")
	for pkg, keys := range byPackage {
		s, err := load(pkg, "")
		require.NoError(t, err)
		there := map[string]bool{}
		for _, m := range s.mutants {
			there[m.key()] = true
		}
		for _, key := range keys {
			require.True(t, there[key], "%s is gone", key)
		}
	}
}

// The sample of a seed stays when a mutant is gone, and -against takes the killed
// ones of a file, under their new names.
func TestChoose(t *testing.T) {
	s, err := load("./testdata/toy", "")
	require.NoError(t, err)
	o := options{n: 10, seed: 7}
	sample := o.choose(s)
	require.Len(t, sample, 10)
	gone := sample[0]
	s.mutants = append([]*mutant(nil), s.mutants...)
	for i, m := range s.mutants {
		if m == gone {
			s.mutants = append(s.mutants[:i], s.mutants[i+1:]...)
			break
		}
	}
	require.Equal(t, sample[1:], o.choose(s)[:9])

	file := filepath.Join(t.TempDir(), "before.txt")
	path := s.path
	require.NoError(t, os.WriteFile(file, []byte(
		killed+"\t"+path+"\t(*Stack).push\tdrop\ts.n++\t1\ttoy.go:19\tTestStack\n"+
			survived+"\t"+path+"\t(*Stack).pop\tdrop\ts.n--\t1\ttoy.go:25\t\n"+
			killed+"\t"+path+"\tlost\tdrop\ts.n--\t1\ttoy.go:25\tTestStack\n"), 0o600))
	o.wanted, err = readKilled(file, "Stack=stack")
	require.NoError(t, err)
	chosen := o.choose(s)
	require.Len(t, chosen, 1)
	require.Equal(t, "(*stack).push drop s.n++ 1", short(chosen[0]))
	_, err = readKilled(file, "Stack")
	require.Error(t, err)
}
