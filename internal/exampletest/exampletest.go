// Package exampletest holds packages to their rule for documentation: every
// public identifier appears in a runnable Example.
package exampletest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Complete fails the test unless every public identifier of the packages in the
// folders (none: the current one) appears in one of their files
// *example*_test.go, with whichever build tags. The methods String, Error and
// Unwrap need not, as fmt and errors call them, nor Ops, which only packages of
// this module call.
func Complete(t *testing.T, folders ...string) {
	t.Helper()
	if len(folders) == 0 {
		folders = []string{"."}
	}
	used := map[string]bool{}
	for _, name := range glob(t, folders, "*example*_test.go") {
		ast.Inspect(parse(t, name), func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				used[sel.Sel.Name] = true
			}
			return true
		})
	}
	var missing []string
	for _, name := range glob(t, folders, "*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, id := range public(parse(t, name)) {
			if !used[id] {
				missing = append(missing, name+": "+id)
			}
		}
	}
	require.Empty(t, missing)
}

// glob returns the files of the folders that match.
func glob(t *testing.T, folders []string, pattern string) (files []string) {
	t.Helper()
	for _, folder := range folders {
		in, err := filepath.Glob(filepath.Join(folder, pattern))
		require.NoError(t, err)
		files = append(files, in...)
	}
	return files
}

// public returns the names that a file exports.
func public(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if n := d.Name.Name; n != "String" && n != "Error" && n != "Unwrap" && n != "Ops" && isPublic(d) {
				names = append(names, n)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return !ast.IsExported(n) })
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
	return !ok || id.IsExported() // the receiver of a generic type is an expression
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return f
}
