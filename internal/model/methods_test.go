package model

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

const module = "github.com/cupool/cupool"

// tested are the types all of whose exported methods a step calls.
var tested = map[string][]string{
	module:              {"Pool", "Stream", "Event", "Buffer"},
	module + "/arena":   {"Arena"},
	module + "/planner": {"Planner"},
}

// behind are the types that steps call by an interface.
var behind = map[string][]string{
	"Tested":    {"Pool"},
	"Allocator": {"Pool", "Arena", "Planner"},
}

// TestEveryMethodIsAStep: what steps do reaches a call of each public method.
func TestEveryMethodIsAStep(t *testing.T) {
	info, pkg, files := check(t)
	uses := map[types.Object][]types.Object{} // of a function or variable here, what it names
	for _, f := range files {
		for _, d := range f.Decls {
			for owner, node := range owners(info, d) {
				ast.Inspect(node, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok && info.Uses[id] != nil {
						uses[owner] = append(uses[owner], info.Uses[id])
					}
					return true
				})
			}
		}
	}
	reached := map[types.Object]bool{}
	called := map[string]bool{} // by an interface
	var reach func(o types.Object)
	reach = func(o types.Object) {
		if f, ok := o.(*types.Func); ok {
			o = f.Origin()
			if r := f.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
				if n, ok := r.Type().(*types.Named); ok {
					for _, name := range behind[n.Obj().Name()] {
						called[name+"."+f.Name()] = true
					}
				}
			}
		}
		if reached[o] {
			return
		}
		reached[o] = true
		for _, u := range uses[o] {
			reach(u)
		}
		if n, ok := o.(*types.TypeName); ok && n.Pkg() == pkg { // its methods are called by others
			if named, ok := n.Type().(*types.Named); ok {
				for m := range named.Methods() {
					reach(m)
				}
			}
		}
	}
	reach(pkg.Scope().Lookup("steps"))
	var missing []string
	for _, p := range pkg.Imports() {
		for _, name := range tested[p.Path()] {
			set := types.NewMethodSet(types.NewPointer(p.Scope().Lookup(name).Type()))
			for m := range set.Methods() {
				if f := m.Obj().(*types.Func); f.Exported() && !reached[f.Origin()] && !called[name+"."+f.Name()] {
					missing = append(missing, name+"."+f.Name())
				}
			}
		}
	}
	require.Empty(t, missing, "no step of steps.go calls them")
}

// owners returns what a declaration declares, with its source.
func owners(info *types.Info, d ast.Decl) map[types.Object]ast.Node {
	list := map[types.Object]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		list[info.Defs[d.Name]] = d.Body
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for _, n := range v.Names {
					list[info.Defs[n]] = v
				}
			}
		}
	}
	return list
}

// check checks the types of this package, without its tests.
func check(t *testing.T) (*types.Info, *types.Package, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	names, err := os.ReadDir(".")
	require.NoError(t, err)
	var files []*ast.File
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".go") && !strings.HasSuffix(n.Name(), "_test.go") {
			f, err := parser.ParseFile(fset, n.Name(), nil, 0)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: testkit.Importer(t, fset, ".")}
	pkg, err := cfg.Check(module+"/internal/model", fset, files, info)
	require.NoError(t, err)
	return info, pkg, files
}
