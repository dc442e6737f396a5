package conformance

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSkipsOfScripts: what bench/validate.sh skips of the battery are tests of it,
// by their path, as go test takes an expression without one for the name of a
// whole test.
func TestSkipsOfScripts(t *testing.T) {
	text, err := os.ReadFile("../../bench/validate.sh")
	require.NoError(t, err)
	found := 0
	for _, m := range regexp.MustCompile(`-test\.skip\s+(\S+)`).FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], "$programs") {
			continue // whole tests
		}
		path := strings.Split(strings.Trim(m[1], `'"`), "/")
		require.Len(t, path, 4, "%s: test, kind of memory, configuration, test of the battery", m[1])
		require.Equal(t, "^TestConformance$", path[0])
		of, err := regexp.Compile(path[3])
		require.NoError(t, err)
		matched := 0
		for _, b := range battery {
			if of.MatchString(b.name) {
				matched++
			}
		}
		require.Positive(t, matched, "no test of the battery is called %s", path[3])
		found++
	}
	require.Positive(t, found)
}
