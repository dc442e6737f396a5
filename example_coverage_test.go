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

// Every public identifier of the package appears in a runnable Example.
func TestEveryIdentifierIsInAnExample(t *testing.T) {
	examples, err := filepath.Glob("*example*_test.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, name := range examples {
		ast.Inspect(parse(t, name), func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				used[sel.Sel.Name] = true
			}
			return true
		})
	}
	var missing []string
	need := func(file string, id *ast.Ident) {
		if id.IsExported() && !used[id.Name] {
			missing = append(missing, file+": "+id.Name)
		}
	}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range parse(t, name).Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				// String, Error and Unwrap are called by the likes of fmt and errors.
				if n := d.Name.Name; n != "String" && n != "Error" && n != "Unwrap" && isPublic(d) {
					need(name, d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						need(name, spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							need(name, id)
						}
					}
				}
			}
		}
	}
	require.Empty(t, missing)
}

// isPublic reports whether a function is no method of a private type.
func isPublic(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	id, ok := t.(*ast.Ident)
	return !ok || id.IsExported() // of a generic type it is an expression
}

func parse(t *testing.T, name string) *ast.File {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return f
}
