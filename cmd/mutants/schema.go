package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// switchFile is what a package with mutants gets. Which of them is on stands in
// the environment. With the name of a file there, the process sets a byte of it for
// each that it reaches: in shared memory, as some code may make no system call.
const switchFile = `package %s

import (
	mutantCmp "cmp"
	mutantOS "os"
	mutantStrconv "strconv"
	mutantSyscall "syscall"
)

var (
	mutantOn, _   = mutantStrconv.Atoi(mutantOS.Getenv("` + variable + `"))
	mutantReached = mutantOpen(mutantOS.Getenv("` + recordVariable + `"))
)

func mutantOpen(file string) []byte {
	if file == "" {
		return nil
	}
	f, err := mutantOS.OpenFile(file, mutantOS.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	b, err := mutantSyscall.Mmap(int(f.Fd()), 0, %d, mutantSyscall.PROT_READ|mutantSyscall.PROT_WRITE, mutantSyscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return b
}

func mutant(n int) bool {
	if mutantReached != nil {
		mutantReached[n] = 1
	}
	return mutantOn == n
}

func mutantOff[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr](n int, x T) T {
	if mutant(n) {
		return x + 1
	}
	return x
}

func mutantLess[T mutantCmp.Ordered](n int, a, b T) bool {
	if mutant(n) {
		return a <= b
	}
	return a < b
}

func mutantUpTo[T mutantCmp.Ordered](n int, a, b T) bool {
	if mutant(n) {
		return a < b
	}
	return a <= b
}

func mutantOver[T mutantCmp.Ordered](n int, a, b T) bool {
	if mutant(n) {
		return a >= b
	}
	return a > b
}

func mutantFrom[T mutantCmp.Ordered](n int, a, b T) bool {
	if mutant(n) {
		return a > b
	}
	return a >= b
}

func mutantPick[T any](n int, a, b T) T {
	if mutant(n) {
		return b
	}
	return a
}
`

const (
	variable       = "CUPOOL_MUTANT"
	recordVariable = "CUPOOL_MUTANT_RECORD"
)

// mutant is one break, which its edits make where the switch has its number.
type mutant struct {
	number                        int // from 1
	pkg, function, operator, text string
	ordinal                       int // which of the same operator and text in the function, from 1
	file                          *source
	start, end                    int // the offsets of what it changes
	place                         string
	dropped                       bool // it does not compile
	returns                       bool // it drops the end of a way through its function
}

// key names a mutant, and stays when other lines change.
func (m *mutant) key() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d", m.pkg, m.function, m.operator, m.text, m.ordinal)
}

// edit puts text in the place of n bytes at an offset, for a mutant.
type edit struct {
	at, n int
	text  string
	after bool // it closes what another edit opened: of those at one place, the last goes first
	owner *mutant
}

// source is one file.
type source struct {
	path  string
	text  string
	file  *ast.File
	edits []edit
}

// schema is a package with all its mutants.
type schema struct {
	path      string // the import path
	name      string
	dir       string
	goVersion string
	exports   map[string]string
	fset      *token.FileSet
	files     []*source
	info      *types.Info
	pkg       *types.Package
	mutants   []*mutant
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	Module                        *struct{ GoVersion string }
	Standard, DepOnly             bool
}

func goList(args ...string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,Name,Export,GoFiles,Module,Standard,DepOnly"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

// load reads a package and finds its mutants.
func load(pattern, tags string) (*schema, error) {
	all, err := goList("-deps", "-export", "-tags="+tags, pattern, "cmp", "os", "strconv", "syscall") // the switch imports those
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(l listed) bool { return !l.DepOnly && !l.Standard })
	if i < 0 {
		return nil, errors.New("no package")
	}
	p := all[i]
	s := &schema{path: p.ImportPath, name: p.Name, dir: p.Dir, exports: map[string]string{}, fset: token.NewFileSet()}
	if p.Module != nil {
		s.goVersion = "go" + p.Module.GoVersion
	}
	for _, l := range all {
		s.exports[l.ImportPath] = l.Export
	}
	for _, name := range p.GoFiles {
		f := &source{path: filepath.Join(p.Dir, name)}
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		f.text = string(text)
		if f.file, err = parser.ParseFile(s.fset, f.path, f.text, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
	}
	var wrong []types.Error
	if s.pkg, s.info, wrong = s.check(s.fset, s.files); len(wrong) > 0 {
		return nil, wrong[0]
	}
	for _, f := range s.files {
		s.find(f)
	}
	s.number()
	return s, nil
}

// check checks the types of files, and returns all errors.
func (s *schema) check(fset *token.FileSet, files []*source) (*types.Package, *types.Info, []types.Error) {
	var wrong []types.Error
	conf := types.Config{
		GoVersion: s.goVersion,
		Sizes:     types.SizesFor("gc", runtime.GOARCH),
		Error: func(err error) {
			if e := err.(types.Error); !e.Soft || !strings.HasSuffix(e.Msg, "imported and not used") {
				wrong = append(wrong, e)
			}
		},
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			if s.exports[path] == "" {
				return nil, fmt.Errorf("package %s was not built", path)
			}
			return os.Open(s.exports[path])
		}),
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.file)
	}
	pkg, _ := conf.Check(s.path, fset, parsed, info) // the error is the first of those that Error saw
	return pkg, info, wrong
}

// number gives the mutants that are not dropped their numbers and ordinals.
func (s *schema) number() {
	s.mutants = slices.DeleteFunc(s.mutants, func(m *mutant) bool { return m.dropped })
	same := map[string]int{}
	for i, m := range s.mutants {
		m.number, m.ordinal = i+1, 0
		key := m.key()
		same[key]++
		m.ordinal = same[key]
	}
}

// overlay returns the texts of all files with their mutants, and of the switch.
func (s *schema) overlay() map[string]string {
	texts := map[string]string{filepath.Join(s.dir, "mutant_switch.go"): fmt.Sprintf(switchFile, s.name, len(s.mutants)+1)}
	for _, f := range s.files {
		texts[f.path], _ = f.apply()
	}
	return texts
}

// A piece of a file with mutants comes from an offset of the file, or from an edit.
type piece struct {
	at, from int
	owner    *mutant
}

// apply returns the text with all edits, and where each piece of it comes from.
func (f *source) apply() (string, []piece) {
	var edits []edit
	for _, e := range f.edits {
		if !e.owner.dropped {
			edits = append(edits, e)
		}
	}
	slices.Reverse(edits) // of those that close, the last goes first
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return order(a) - order(b)
	})
	for i := 0; i < len(edits); { // of those that open, the first goes first
		j := i
		for j < len(edits) && edits[j].at == edits[i].at && order(edits[j]) == order(edits[i]) {
			j++
		}
		if !edits[i].after {
			slices.Reverse(edits[i:j])
		}
		i = j
	}
	var b strings.Builder
	var pieces []piece
	at := 0
	for _, e := range edits {
		pieces = append(pieces, piece{b.Len(), at, nil})
		b.WriteString(f.text[at:e.at])
		pieces = append(pieces, piece{b.Len(), e.at, e.owner})
		b.WriteString(strings.ReplaceAll(e.text, numberMark, fmt.Sprint(e.owner.number)))
		at = e.at + e.n
	}
	pieces = append(pieces, piece{b.Len(), at, nil})
	b.WriteString(f.text[at:])
	return b.String(), pieces
}

// numberMark stands for the mutant's number in the text of an edit.
const numberMark = "\x00"

// order is the order of edits at one place.
func order(e edit) int {
	if e.after {
		return 0
	}
	return 1
}

// keepCompiling drops mutants until the package compiles with the others.
func (s *schema) keepCompiling() error {
	for range 50 {
		fset := token.NewFileSet()
		var files []*source
		pieces := map[string][]piece{}
		for _, f := range s.files {
			text, from := f.apply()
			parsed, err := parser.ParseFile(fset, f.path, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, &source{path: f.path, file: parsed})
			pieces[f.path] = from
		}
		parsed, err := parser.ParseFile(fset, "mutant_switch.go", fmt.Sprintf(switchFile, s.name, len(s.mutants)+1), parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		_, _, wrong := s.check(fset, append(files, &source{file: parsed}))
		if len(wrong) == 0 {
			s.number()
			return nil
		}
		for _, e := range wrong {
			at := fset.Position(e.Pos)
			if !s.drop(at.Filename, at.Offset, pieces[at.Filename]) {
				return fmt.Errorf("not by a mutant: %w", e)
			}
		}
	}
	return errors.New("mutants that do not compile are left")
}

// drop drops the mutant that an error at an offset is of: that whose edit it is in,
// or the innermost around it, or all that drop a return from the function around it.
func (s *schema) drop(file string, offset int, pieces []piece) bool {
	i, _ := slices.BinarySearchFunc(pieces, offset+1, func(p piece, at int) int { return p.at - at })
	if i == 0 {
		return false
	}
	p := pieces[i-1]
	if p.owner != nil {
		p.owner.dropped = true
		return true
	}
	at := p.from + offset - p.at
	var best *mutant
	for _, m := range s.mutants {
		if m.file.path == file && m.start <= at && at < m.end && (best == nil || m.end-m.start < best.end-best.start || best.dropped) && !m.dropped {
			best = m
		}
	}
	if best != nil {
		best.dropped = true
		return true
	}
	found := false
	for _, f := range s.files {
		for _, d := range f.file.Decls {
			if start, end := s.span(d); f.path != file || at < start || at >= end {
				continue
			}
			start, end := s.span(d)
			for _, m := range s.mutants {
				if m.file == f && m.returns && !m.dropped && start <= m.start && m.end <= end {
					m.dropped, found = true, true
				}
			}
		}
	}
	return found
}

// span returns the offsets of a node in its file.
func (s *schema) span(n ast.Node) (start, end int) {
	return s.fset.Position(n.Pos()).Offset, s.fset.Position(n.End()).Offset
}
