// Package ctest_test builds libcupool.so, and runs programs in C over it and the stand-in driver.
package ctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// library is where libcupool.so is, "" where there is none.
var library string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := exec.LookPath("gcc"); err != nil || os.Getenv("CUPOOL_LIBCUDA") == "" {
		fmt.Println("left out: they need gcc, and CUPOOL_LIBCUDA to name the stand-in driver")
		return 0
	}
	dir, err := os.MkdirTemp("", "ctest")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	library = filepath.Join(dir, "libcupool.so")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-tags=capitest", "-ldflags=-s -w", "-o", library, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Printf("building libcupool.so: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// compile builds a program of testdata, and returns its path.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I../.."}, flags...)
	args = append(args, "testdata/"+name+".c", "-o", to, "-L"+filepath.Dir(library), "-Wl,--as-needed", "-lcupool", "-ldl", "-lpthread", "-Wl,-rpath,"+filepath.Dir(library))
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// succeed runs a program, which is to end with a status.
func succeed(t *testing.T, status int, program string, args ...string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "CUPOOL_LIBRARY="+library, "CUPOOL_ALLOC_CONF=", "ASAN_OPTIONS=detect_leaks=0:handle_segv=0")
	out, err := c.CombinedOutput()
	if status == 0 {
		require.NoError(t, err, "%s %s\n%s", filepath.Base(program), strings.Join(args, " "), out)
		return
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, status, exit.ExitCode(), "%s", out)
}

// TestHeader: the header is C99 and C++17, without a warning.
func TestHeader(t *testing.T) {
	for _, c := range [][]string{
		{"gcc", "-std=c99", "-xc"}, {"gcc", "-std=c11", "-xc"}, {"g++", "-std=c++17", "-xc++"},
	} {
		if _, err := exec.LookPath(c[0]); err != nil {
			t.Logf("there is no %s", c[0])
			continue
		}
		out, err := exec.Command(c[0], append(c[1:], "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "../../cupool.h")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestSymbols: the header's functions are all there is of the library to link with.
func TestSymbols(t *testing.T) {
	header, err := os.ReadFile("../../cupool.h")
	require.NoError(t, err)
	out, err := exec.Command("nm", "-D", "--defined-only", library).Output()
	if err != nil {
		t.Skip("there is no nm")
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if name := f[len(f)-1]; strings.HasPrefix(name, "cupool_") && name != "cupool_test_panic" {
			require.Contains(t, string(header), name+"(", "it is exported")
			found++
		}
	}
	require.Greater(t, found, 50)
	require.Equal(t, strings.Count(string(header), "CUPOOL_API ")-strings.Count(string(header), "#define CUPOOL_API "), found)
}

func TestInterface(t *testing.T) { succeed(t, 0, compile(t, "basic"), t.TempDir()) }
func TestPools(t *testing.T)     { succeed(t, 0, compile(t, "pools")) }
func TestCapture(t *testing.T)   { succeed(t, 0, compile(t, "capture")) }

// TestProcess: forks, exits, signals, panics of Go and failures of the driver.
func TestProcess(t *testing.T) {
	program := compile(t, "process")
	for what, status := range map[string]int{"forks": 0, "exits": 0, "shutdown": 0, "signals": 7, "before": 7, "panics": 0, "failures": 0, "unchanged": 0, "environment": 0, "thresholds": 0} {
		t.Run(what, func(t *testing.T) { succeed(t, status, program, what) })
	}
}

// TestRandom: statistics beside snapshots in random programs.
func TestRandom(t *testing.T) {
	program := compile(t, "random")
	seed := testkit.Seed(t)
	for i := range uint64(testkit.Choose(50, 2)) {
		for _, threads := range []string{"1", "4"} {
			succeed(t, 0, program, fmt.Sprint((seed+i)%(1<<50)), threads, "200")
		}
	}
}

// TestSanitized: the lock-free way under the sanitizer of threads, and programs under that of
// addresses, where gcc has them.
func TestSanitized(t *testing.T) {
	for name, flag := range map[string]string{"hit": "-fsanitize=thread", "pools": "-fsanitize=address,undefined"} {
		t.Run(name, func(t *testing.T) {
			probe := exec.Command("gcc", flag, "-xc", "-", "-o", filepath.Join(t.TempDir(), "probe"))
			probe.Stdin = strings.NewReader("int main(void) { return 0; }")
			if probe.Run() != nil || exec.Command(probe.Args[len(probe.Args)-1]).Run() != nil {
				t.Skipf("gcc has no %s here", flag)
			}
			succeed(t, 0, compile(t, name, flag))
		})
	}
}
