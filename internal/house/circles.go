package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A calls says for each file of a package which other files have functions or
// methods that it uses.
type calls map[string]map[string]bool

// exports returns where the compiler left what each package, of this module
// or another, exports. The build has no tags: with -tags gpu it would need a
// CUDA toolkit.
func exports(root string) (map[string]string, error) {
	all, err := goList(root, nil, "-tags=", "-deps", "-export")
	if err != nil {
		return nil, err
	}
	at := map[string]string{}
	for _, l := range all {
		at[l.ImportPath] = l.Export
	}
	return at, nil
}

// callsOf finds which file of a package uses which. Packages that are not
// exported, as gorgonia.org/cu, leave their own names unknown, and no others.
func callsOf(p pkg, exported map[string]string) calls {
	find := func(path string) (io.ReadCloser, error) {
		if exported[path] == "" {
			return nil, fmt.Errorf("package %s was not built", path)
		}
		return os.Open(exported[path])
	}
	var files []*ast.File
	for _, f := range p.files {
		files = append(files, f.syntax)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", find), FakeImportC: true, Error: func(error) {}}
	tp, _ := conf.Check(module+"/"+p.dir, p.fset, files, info) // the error is the first of those that Error saw
	file := func(at token.Pos) string { return filepath.Base(p.fset.Position(at).Filename) }
	c := calls{}
	for id, o := range info.Uses {
		f, ok := o.(*types.Func)
		if !ok || f.Pkg() != tp {
			continue
		}
		if a, b := file(id.Pos()), file(f.Origin().Pos()); a != b {
			if c[a] == nil {
				c[a] = map[string]bool{}
			}
			c[a][b] = true
		}
	}
	return c
}

// mutual counts the pairs of files that use each other.
func (c calls) mutual() (n int) {
	for a := range c {
		for b := range c[a] {
			if a < b && c[b][a] {
				n++
			}
		}
	}
	return n
}

// circle returns the largest set of files each of which leads to each other,
// sorted: the largest strongly connected component, by Tarjan's algorithm.
func (c calls) circle() (best []string) {
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, on[v] = append(stack, v), true
		for _, w := range sorted(c[v]) {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] < index[v] {
			return
		}
		at := slices.Index(stack, v)
		found := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, w := range found {
			on[w] = false
		}
		if len(found) > len(best) {
			best = found
		}
	}
	for _, v := range sorted(c) {
		if index[v] == 0 {
			visit(v)
		}
	}
	slices.Sort(best)
	return best
}
