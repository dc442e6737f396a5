package cupool_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every row of docs/features.md says yes for us, by links to Examples or tests
// that are there, and that use what is named behind the link. An Example uses
// what it is called after.
func TestFeatures(t *testing.T) {
	text, err := os.ReadFile("docs/features.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\[(\w+)\]\(\.\./([\w/]+_test\.go)\)(?:: ((?:` + "`\\w+` ?" + `)+))?`)
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
			used := usedIn(t, filepath.FromSlash(l[2]), l[1])
			if typ, method, ok := strings.Cut(strings.TrimPrefix(l[1], "Example"), "_"); ok && typ != l[1] && method[0] < 'a' {
				method, _, _ = strings.Cut(method, "_")
				require.Contains(t, used, method, "%s shows no %s", l[1], method)
			}
			for name := range strings.FieldsSeq(strings.ReplaceAll(l[3], "`", " ")) {
				require.Contains(t, used, name, "%s in %s uses no %s", l[1], l[2], name)
			}
		}
	}
	require.Greater(t, rows, 50)
}

// usedIn returns the names that a function of a file selects or sets.
func usedIn(t *testing.T, path, function string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	i := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == function
	})
	require.GreaterOrEqual(t, i, 0, "%s is not in %s", function, path)
	ast.Inspect(f.Decls[i], func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}
