package cupool_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts of a Pool name neither the Pool nor the list of the device's pools: what they
// call lies below them.
func TestPartsKnowNoPool(t *testing.T) {
	parts := map[string]bool{"pool": true, "heapTable": true, "lending": true, "reclaimer": true, "streamHeap": true, "request": true, "lender": true}
	pools := map[string]bool{"root": true, "pools": true, "remains": true, "private": true, "open": true, "byID": true, "holder": true, "life": true}
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]int{}
	look := func(part string, n ast.Node) {
		found[part]++
		ast.Inspect(n, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.StarExpr:
				if id, ok := x.X.(*ast.Ident); ok && id.Name == "Pool" {
					t.Errorf("%s: %s names the Pool", set.Position(n.Pos()), part)
				}
			case *ast.SelectorExpr:
				if of, ok := x.X.(*ast.SelectorExpr); ok && of.Sel.Name == "dev" && pools[x.Sel.Name] {
					t.Errorf("%s: %s reaches dev.%s", set.Position(n.Pos()), part, x.Sel.Name)
				}
			}
			return true
		})
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					of := d.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					if id, ok := of.(*ast.Ident); ok && parts[id.Name] {
						look(id.Name, d)
					}
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && parts[s.Name.Name] {
						look(s.Name.Name, s)
					}
				}
			}
		}
	}
	for part := range parts {
		require.NotZero(t, found[part], "there is no %s", part)
	}
}
