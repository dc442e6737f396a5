package main

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// TestChangesBuild: each change finds its texts in the sources as they are, and these still build with it.
func TestChangesBuild(t *testing.T) {
	t.Chdir("../..")
	set := token.NewFileSet()
	packages := testkit.Importer(t, set, ".", "./internal/heap")
	for _, c := range changes() {
		texts, err := edited(c.edits)
		require.NoError(t, err, c.rule)
		dirs := map[string]bool{}
		for file := range texts {
			dirs[filepath.Dir(file)] = true
		}
		for dir := range dirs {
			pkg, err := build.ImportDir(dir, 0)
			require.NoError(t, err)
			var parsed []*ast.File
			for _, name := range pkg.GoFiles {
				file := filepath.Join(dir, name)
				var text any // nil: as it is in the file
				if changed, ok := texts[file]; ok {
					text = changed
				}
				f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
				require.NoError(t, err, c.rule)
				parsed = append(parsed, f)
			}
			check := types.Config{Importer: packages, GoVersion: "go1.26"}
			_, err = check.Check(dir, set, parsed, nil)
			require.NoError(t, err, "%s becomes %s", c.rule, c.to)
		}
	}
	_, err := edited([]edit{{"go.mod", "not there", ""}})
	require.ErrorContains(t, err, `go.mod has 0 times "not there"`)
}

// TestNoRule: what matches no rule is a mistake, and no empty table.
func TestNoRule(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, runAblation(regexp.MustCompile("nonsense"), &out), `matches "nonsense"`)
	require.Empty(t, out.String())
}

// TestPrograms: a seed makes the same program each time, and frees what is live.
func TestPrograms(t *testing.T) {
	for kind := range kinds {
		text := makeProgram(kind, 1)
		require.Equal(t, text, makeProgram(kind, 1), kind)
		require.NotEqual(t, text, makeProgram(kind, 2), kind)
		live := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			switch f := strings.Fields(line); f[0] {
			case "a":
				live[f[1]] = true
			default:
				require.True(t, live[f[1]], "%s: %s", kind, line)
				delete(live, f[1])
			}
		}
		require.Positive(t, bytes.Count(text, []byte("a ")), kind)
	}
}

// TestCompare: programs of a kind count together.
func TestCompare(t *testing.T) {
	was := map[string]replay{"x/a-1.trace.gz": {Ratio: 1, DriverUsModelled: 8}, "x/a-2.trace.gz": {Ratio: 1, DriverUsModelled: 2}, "x/b.trace.gz": {Ratio: 2, DriverUsModelled: 1}}
	now := map[string]replay{"x/a-1.trace.gz": {Ratio: 1, DriverUsModelled: 8}, "x/a-2.trace.gz": {Ratio: 1.21, DriverUsModelled: 2}, "x/b.trace.gz": {Ratio: 2, DriverUsModelled: 2}}
	a := compare(was, now)
	require.InDelta(t, 0.05, a.memory, 1e-9)
	require.InDelta(t, 0.5, a.time, 1e-9)
	require.InDelta(t, 0.1, a.most, 1e-9)
	require.Equal(t, "a", a.mostOf)
	require.Equal(t, "b", a.mostTimeOf)
}
