package testkit

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// InChild runs the rest of a test in a process of its own, as it may end the
// process, and fails when that fails. It returns false in the parent.
func InChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv("CUPOOL_TEST_CHILD") == t.Name() {
		return true
	}
	parts := strings.Split(t.Name(), "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	cmd := exec.Command(os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "CUPOOL_TEST_CHILD="+t.Name())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%.4000s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// asProgram is the variable with which a test's binary is its program.
const asProgram = "CUPOOL_TEST_AS_PROGRAM"

// AsProgram is for TestMain. In a process that Program started it runs main and ends; in the
// tests it takes the variables of launchers away, which are not the program's.
func AsProgram(main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	for _, name := range []string{"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"} {
		os.Unsetenv(name)
	}
}

// Program returns the program whose test this is, with arguments that spaces part, and
// variables beside those of the process. The end of the test kills it.
func Program(t *testing.T, args string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := exec.CommandContext(t.Context(), self, strings.Fields(args)...)
	p.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	return p
}
