package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needsBuild skips a test on computers where nothing can be built with CUDA, or
// that have no shell.
func needsBuild(t *testing.T) {
	t.Helper()
	for _, name := range []string{"gcc", "sh"} {
		if _, err := exec.LookPath(name); err != nil || runtime.GOOS != "linux" {
			t.Skipf("no %s on Linux", name)
		}
	}
}

func TestEnv(t *testing.T) {
	needsBuild(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CGO_CFLAGS", "")
	t.Setenv("CGO_LDFLAGS", "-Lit's mine")
	dir := t.TempDir()
	status, stdout, stderr := tool(t, "env", "-cuda", dir)
	assert.Equal(t, 1, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "no CUDA toolkit found")
	assert.Contains(t, stderr, "Leave out -cuda")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "include"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "include/cuda.h"), []byte("#define CUDA_VERSION 13000\n"), 0o644))
	status, stdout, stderr = tool(t, "env", "-cuda", dir)
	require.Zero(t, status, stderr)
	assert.Contains(t, stderr, "cupool env: headers: CUDA 13.0 in "+dir)

	out, err := exec.Command("sh", "-c", stdout+`printf '%s\n%s\n' "$CGO_CFLAGS" "$CGO_LDFLAGS"; cat "$(printf %s "$CGO_CFLAGS" | cut -d' ' -f1 | cut -c3-)/cuda.h"`).Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "-I"+dir+"/include -g -O2\n")
	assert.Contains(t, string(out), ` "-Lit's" mine`+"\n")
	assert.Contains(t, string(out), "#include_next <cuda.h>")
}

func TestEnvWithoutToolkit(t *testing.T) {
	needsBuild(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(t.TempDir(), "a cache"))
	status, stdout, stderr := tool(t, "env", "-cuda", "none")
	require.Zero(t, status, stderr)
	assert.Contains(t, stderr, "headers: cupool's own")
	assert.Contains(t, stdout, "export CGO_CFLAGS=")
	status, again, stderr := tool(t, "env", "-cuda", "none", "-q")
	require.Zero(t, status)
	assert.Equal(t, stdout, again)
	assert.Empty(t, stderr)

	t.Setenv("CC", "no-such-compiler")
	status, _, stderr = tool(t, "env")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "install gcc")
}
