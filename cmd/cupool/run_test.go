package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

// asTool in the environment makes the test's binary the tool: cupool run
// replaces its process.
const asTool = "CUPOOL_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		os.Unsetenv(asTool)
		main()
	}
	os.Exit(m.Run())
}

// toolProcess is the tool as a process of its own.
func toolProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	needsBuild(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CGO_LDFLAGS=") })
	cmd.Env = append(env, asTool+"=1", "XDG_CACHE_HOME="+t.TempDir(), "CGO_CFLAGS=-DMINE", "CGO_ENABLED=0")
	return cmd
}

func TestRun(t *testing.T) {
	out, err := toolProcess(t, "run", "-q", "-cuda", "none", "--", "sh", "-c", `echo "$CGO_CFLAGS $CGO_LDFLAGS $CGO_ENABLED $1"; exit 7`, "sh", "-an argument").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	assert.Equal(t, 7, exit.ExitCode())
	assert.Regexp(t, `^-I\S+/include-\w+ -DMINE -L\S+ -g -O2 1 -an argument\n$`, string(out))
}

func TestRunSignals(t *testing.T) {
	cmd := toolProcess(t, "run", "--", "sh", "-c", `trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(pipe)
	require.True(t, lines.Scan())
	require.Equal(t, "ready", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.True(t, lines.Scan())
	assert.Equal(t, "caught", lines.Text())
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 3, exit.ExitCode())
}

func TestWithVars(t *testing.T) {
	env := withVars(strings.Fields("A=1 B=2 A=3 AB=4"), []cudatoolkit.Var{{Name: "A", Value: "5"}, {Name: "C", Value: "6"}})
	assert.Equal(t, strings.Fields("B=2 AB=4 A=5 C=6"), env)
}
