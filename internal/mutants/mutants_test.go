package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sourcesOf are files with the given texts.
func sourcesOf(t *testing.T, files map[string]string) sources {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(root)
	src, err := readSources(".")
	require.NoError(t, err)
	return src
}

func TestFind(t *testing.T) {
	src := sourcesOf(t, map[string]string{
		"a/a.go":                 "package a\n\nfunc f() {\n\tx()\n\tif y() {\n\t\tz()\n\t}\n}\n",
		"a/a_test.go":            "package a\n\nfunc once() {}\n",
		"b.go":                   "package b\n\nfunc f() {\n\tx()\n}\n",
		"internal/mutants/l.go":  "package main\n\nfunc once() {}\n",
		"testdata/c.go":          "package c\n\nfunc once() {}\n",
		".hidden/c.go":           "package c\n\nfunc once() {}\n",
		"internal/other/main.go": "package main\n",
	})
	require.Len(t, src, 3)

	m := mutant{old: "\nx()\n  if y() {\n", now: "\tif !y() {"}
	file, text, err := src.change(m)
	require.NoError(t, err)
	require.Equal(t, "a/a.go", filepath.ToSlash(file))
	require.Equal(t, "package a\n\nfunc f() {\nif !y() {\n\t\tz()\n\t}\n}\n", text)
	place, err := src.place(m)
	require.NoError(t, err)
	require.Equal(t, "a/a.go:4", filepath.ToSlash(place))

	_, text, err = src.change(mutant{old: "z()"})
	require.NoError(t, err)
	require.Equal(t, "package a\n\nfunc f() {\n\tx()\n\tif y() {\n\t}\n}\n", text)

	_, _, err = src.change(mutant{old: "x()"})
	require.ErrorContains(t, err, "2 places")
	_, _, err = src.change(mutant{old: "func once() {}"})
	require.ErrorContains(t, err, "no file")
}

// A mutant that a test sees is killed, one that none sees survives, and one that
// is no program is not taken for killed.
func TestTry(t *testing.T) {
	src := sourcesOf(t, map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.21\n",
		"m.go":      "package m\n\nfunc one() int {\n\treturn 1\n}\n\nfunc two() int {\n\treturn 2\n}\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Error()\n\t}\n}\n",
	})
	b := &bench{src: src, dir: t.TempDir(), timeout: 60e9}
	seen, unseen := mutant{old: "return 1", now: "return 3"}, mutant{old: "return 2", now: "return 3"}
	require.NoError(t, b.build([]mutant{seen, unseen}))
	result, detail := b.try(seen)
	require.Equal(t, killed, result, detail)
	require.Contains(t, detail, "TestOne")
	result, _ = b.try(unseen)
	require.Equal(t, survived, result)
	result, _ = b.try(mutant{old: "return 1", now: "return x"})
	require.Equal(t, broken, result)
	result, _ = b.try(mutant{old: "return 4"})
	require.Equal(t, lost, result)
	result, _ = b.try(mutant{old: "return 2", now: "return 3", run: "TestTwo"})
	require.Equal(t, lost, result)
	seen.run = "TestOne"
	require.NoError(t, b.build([]mutant{seen, {old: "return 2", run: "TestTwo"}}))
	require.ErrorContains(t, b.build([]mutant{{old: "return 1", run: "TestTwo"}}), "runs no test")
}

// Functions of every form have changed copies, which are called only where the
// mutant is chosen. What is not inside one function is built alone.
func TestTogether(t *testing.T) {
	src := sourcesOf(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.21\n",
		"m.go": `package m

const limit = 3

type T struct{ n int }

func (t *T) Add(n, m int) (sum int, err error) { // one line above the change
	sum = t.n + n + m
	return sum, nil
}

func (T) Blank(_ int, _ string) int {
	return 5
}

func Unnamed(int, string) int {
	return 7
}

func Sum(first int, more ...int) int {
	for _, n := range more {
		first += n
	}
	return first
}

func (t *T) Two() {
	t.n++
	func() {
		t.n *= 2
	}()
}

func Limit() int { return limit }
`,
		"m_test.go": `package m

import "testing"

func TestAll(t *testing.T) {
	x := &T{n: 1}
	sum, err := x.Add(1, 2)
	if sum != 4 || err != nil || x.Blank(1, "") != 5 || Unnamed(1, "") != 7 || Sum(1, 2, 3) != 6 || Limit() != 3 {
		t.Error()
	}
	if x.Two(); x.n != 4 {
		t.Error(x.n)
	}
}
`,
	})
	all := []mutant{
		{old: "sum = t.n + n + m", now: "sum = t.n + n - m"},
		{old: "return 5", now: "return 6"},
		{old: "return 7", now: "return 6"},
		{old: "first += n", now: "first -= n"},
		{old: "t.n++"},
		{old: "t.n *= 2", now: "t.n *= 3"},
		{old: "const limit = 3", now: "const limit = 4"},
		{old: "func Limit() int { return limit }", now: "func Limit() int { return 0 }"},
	}
	b := &bench{src: src, dir: t.TempDir(), timeout: 60e9}
	require.NoError(t, b.build(all))
	require.Len(t, b.groups, 1)
	require.Equal(t, all[6:], b.groups[0].alone)
	for i, m := range all {
		require.Equal(t, i < 6, b.together(m, ".") != "", m.old)
		result, detail := b.try(m)
		require.Equal(t, killed, result, "%s: %s", m.old, detail)
		require.Contains(t, detail, "TestAll")
	}
	all = append(all, mutant{old: "return sum, nil", now: "return sum"})
	require.NoError(t, b.build(all), "one that is no program leaves the others")
	for i, m := range all {
		result, detail := b.try(m)
		require.Equal(t, i == 8, result == broken, "%s: %s", m.old, detail)
	}
}

func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range list {
		require.NotEmpty(t, m.name)
		require.False(t, seen[m.name], "%s twice", m.name)
		seen[m.name] = true
		require.NotEmpty(t, linesOf(m.old), m.name)
		require.False(t, same(linesOf(m.old), linesOf(m.now)), m.name)
	}
	require.Greater(t, len(list), 46)
}

// TestNoneIsLost: whoever rewrites a line that a mutant changes adapts the mutant.
func TestNoneIsLost(t *testing.T) {
	t.Chdir("../..")
	src, err := readSources(".")
	require.NoError(t, err)
	for _, m := range list {
		_, err := src.place(m)
		require.NoError(t, err, "%s: adapt it to the lines as they are", m.name)
	}
}
