package cupool_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every row of docs/features.md says yes for us, by links to Examples or tests
// that are there.
func TestFeatures(t *testing.T) {
	text, err := os.ReadFile("docs/features.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\[(\w+)\]\(\.\./([\w/]+_test\.go)\)`)
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		require.Len(t, cells, 10, line)
		links := link.FindAllStringSubmatch(cells[9], -1)
		require.NotEmpty(t, links, line)
		require.Len(t, links, strings.Count(cells[9], "_test.go"), "a damaged link: %s", line)
		for _, l := range links {
			source, err := os.ReadFile(filepath.FromSlash(l[2]))
			require.NoError(t, err, line)
			require.Contains(t, string(source), "\nfunc "+l[1]+"(", "%s is not in %s", l[1], l[2])
		}
	}
	require.Greater(t, rows, 50)
}
