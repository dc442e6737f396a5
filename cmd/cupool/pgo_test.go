package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The profile is one that Go's tools read, of functions that there are: the
// compiler goes by their names.
func TestPGO(t *testing.T) {
	status, stdout, stderr := tool(t, "pgo")
	require.Zero(t, status, stderr)
	file := filepath.Join(t.TempDir(), "cupool.pgo")
	require.NoError(t, os.WriteFile(file, []byte(stdout), 0o644))
	out, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=50", file).CombinedOutput()
	require.NoError(t, err, "%s", out)

	name := regexp.MustCompile(`(?m)%\s+github\.com/cupool/cupool(/[\w/]+)?\.(?:(\w+)\.|\(\*(\w+)\)\.)?(\w+)(?: \(inline\))?$`)
	functions := name.FindAllStringSubmatch(string(out), -1)
	require.Greater(t, len(functions), 20, "%s", out)
	source := map[string]string{}
	for _, f := range functions {
		dir := filepath.Join("../..", f[1])
		if source[dir] == "" {
			source[dir] = read(t, dir)
		}
		declared := `(?m)^func ` + f[4] + `\b`
		if receiver := f[2] + f[3]; receiver != "" {
			declared = `(?m)^func \(\w+ \*?` + receiver + `\b.*\) ` + f[4] + `\(`
		}
		require.True(t, regexp.MustCompile(declared).MatchString(source[dir]), "no function is like %s: run make pgo", declared)
	}
}

// read returns all of a package's source.
func read(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(b)
	}
	return all.String()
}
