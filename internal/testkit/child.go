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
