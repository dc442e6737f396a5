package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/cupool/cupool"

// A pkg is one package of the module as one build sees it, without its tests.
type pkg struct {
	dir   string // below the module's root; the root itself is "."
	files []file
	fset  *token.FileSet
}

// A file is one of a package's files.
type file struct {
	name    string
	lines   int
	imports []string
	syntax  *ast.File
}

// listed is what "go list -json" says about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
}

// ownDir returns the directory below the module's root of a package of the
// module.
func ownDir(path string) (dir string, own bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// forLinux is the build whose files are read, on every machine.
var forLinux = []string{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1"}

// goList runs go list in the module's root, with settings added to the
// environment. It needs no CUDA toolkit.
func goList(root string, settings []string, args ...string) ([]listed, error) {
	args = append([]string{"list", "-e", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles"}, args...)
	c := exec.Command("go", append(args, "./...")...)
	c.Dir = root
	c.Env = append(os.Environ(), settings...)
	out, err := c.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the packages below %s: %w", root, err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

// load reads the module's packages as a build with the tags sees them, sorted
// by directory.
func load(root, tags string) ([]pkg, error) {
	all, err := goList(root, forLinux, "-tags="+tags)
	if err != nil {
		return nil, err
	}
	var pkgs []pkg
	for _, l := range all {
		dir, own := ownDir(l.ImportPath)
		if !own {
			continue
		}
		p := pkg{dir: dir, fset: token.NewFileSet()}
		names := append(slices.Clone(l.GoFiles), l.CgoFiles...)
		slices.Sort(names)
		for _, name := range names {
			f, err := readFile(p.fset, filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, f)
		}
		pkgs = append(pkgs, p)
	}
	slices.SortFunc(pkgs, func(a, b pkg) int { return strings.Compare(a.dir, b.dir) })
	return pkgs, nil
}

func readFile(fset *token.FileSet, path string) (file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	syntax, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f := file{name: filepath.Base(path), lines: bytes.Count(text, []byte("\n")), syntax: syntax}
	for _, i := range syntax.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, path)
	}
	return f, nil
}

// lines counts the lines of all files.
func (p pkg) lines() (n int) {
	for _, f := range p.files {
		n += f.lines
	}
	return n
}
