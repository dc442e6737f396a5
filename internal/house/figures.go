package main

import (
	"fmt"
	"go/ast"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// figures are what the goals are about.
type figures struct {
	packages  []packageFigures
	rootFiles int      // Go files of the root without tests, of every build
	rootNames []string // exported top-level names of the root, without and with -tags gpu, sorted
}

// packageFigures describe one package: of the two builds, without and with
// -tags gpu, the one with more lines.
type packageFigures struct {
	dir          string
	files, lines int
	circle       []string // the files of the largest circle
	mutual       int      // pairs of files that use each other
}

// measure reads both builds of the module below root.
func measure(root string) (figures, error) {
	exported, err := exports(root)
	if err != nil {
		return figures{}, err
	}
	f := figures{}
	names, found := map[string]bool{}, map[string]packageFigures{}
	for _, tags := range []string{"", "gpu"} {
		pkgs, err := load(root, tags)
		if err != nil {
			return figures{}, err
		}
		for _, p := range pkgs {
			if p.dir == "." {
				exportedNames(p, names)
			}
			c := callsOf(p, exported)
			x := packageFigures{p.dir, len(p.files), p.lines(), c.circle(), c.mutual()}
			if old := found[p.dir]; x.lines > old.lines {
				found[p.dir] = x
			}
		}
	}
	for _, dir := range sorted(found) {
		f.packages = append(f.packages, found[dir])
	}
	f.rootNames = sorted(names)
	f.rootFiles, err = countFiles(root)
	return f, err
}

// countFiles counts the Go files of a directory that are no tests, whatever
// they are built for.
func countFiles(dir string) (n int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".go" && !strings.HasSuffix(e.Name(), "_test.go") {
			n++
		}
	}
	return n, err
}

// exportedNames adds the exported functions, types, variables and constants of
// a package to names. Methods and fields do not count.
func exportedNames(p pkg, names map[string]bool) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names[id.Name] = true
			}
		}
	}
	for _, f := range p.files {
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						add(s.Names...)
					}
				}
			}
		}
	}
}

// print writes a line for each package, and the root's figures.
func (f figures) print(w io.Writer) {
	fmt.Fprintf(w, "%-36s %5s %6s %7s %7s\n", "package", "files", "lines", "circle", "mutual")
	for _, p := range f.packages {
		fmt.Fprintf(w, "%-36s %5d %6d %7d %7d\n", p.dir, p.files, p.lines, len(p.circle), p.mutual)
	}
	fmt.Fprintf(w, "\nfiles: of the build, without or with -tags gpu, that has more lines; no tests\n")
	fmt.Fprintf(w, "circle: files that all lead to each other by the functions they use; mutual: pairs of files that use each other\n")
	fmt.Fprintf(w, "the root has %d files that are no tests, of all builds, and exports %d names\n", f.rootFiles, len(f.rootNames))
}

func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
