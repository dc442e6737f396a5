package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// All mutants of a package are built at once (mutant schemata; Untch, Offutt and
// Harrold, 1993): a function that a mutant changes gets a changed copy, and calls
// it instead where the mutant's number is in the environment.

// variable is the name of the environment's variable with the number.
const variable = "CUPOOL_MUTANT"

// switchFile is what a package gets whose functions have copies.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var mutantOn, _ = strconv.Atoi(os.Getenv("` + variable + `"))
`

var errNoFunction = errors.New("it is not inside one function")

// edit puts text in the place of n bytes at an offset.
type edit struct {
	at, n int
	text  string
}

// schema is a file with the copies for its mutants.
type schema struct {
	file   *ast.File
	fset   *token.FileSet
	text   string
	edits  []edit
	named  map[*ast.FuncDecl][]string // what the parameters of functions with copies are called
	copies strings.Builder
}

func newSchema(lines []string) (*schema, error) {
	s := &schema{fset: token.NewFileSet(), text: strings.Join(lines, "\n"), named: map[*ast.FuncDecl][]string{}}
	var err error
	s.file, err = parser.ParseFile(s.fset, "", s.text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

func (s *schema) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// add adds mutant number n, which changes the lines from first on, from 0, and
// makes the file's text what is given.
func (s *schema) add(n, first, count int, text string) error {
	i := slices.IndexFunc(s.file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Body != nil && s.fset.Position(f.Body.Lbrace).Line <= first && first+count < s.fset.Position(f.End()).Line
	})
	if i < 0 {
		return errNoFunction
	}
	fset := token.NewFileSet()
	changed, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if len(changed.Decls) != len(s.file.Decls) {
		return errNoFunction
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	f, to := s.file.Decls[i].(*ast.FuncDecl), changed.Decls[i].(*ast.FuncDecl)
	name := fmt.Sprintf("%sMutant%d", f.Name.Name, n)
	fmt.Fprintf(&s.copies, "\n%s%s%s\n", text[at(to.Pos()):at(to.Name.Pos())], name, text[at(to.Name.End()):at(to.End())])
	args := s.params(f)
	if f.Recv != nil {
		name = args[0] + "." + name
		args = args[1:]
	}
	call := fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
	if f.Type.Results != nil {
		call = "return " + call
	} else {
		call += "; return"
	}
	s.edits = append(s.edits, edit{s.offset(f.Body.Lbrace) + 1, 0, fmt.Sprintf(" if mutantOn == %d { %s };", n, call)})
	return nil
}

// params returns the names of a function's receiver and parameters, as a call
// passes them on, and gives names to those that have none.
func (s *schema) params(f *ast.FuncDecl) []string {
	if names, ok := s.named[f]; ok {
		return names
	}
	var fields []*ast.Field
	if f.Recv != nil {
		fields = append(fields, f.Recv.List...)
	}
	fields = append(fields, f.Type.Params.List...)
	var names []string
	for _, field := range fields {
		if len(field.Names) == 0 {
			names = append(names, fmt.Sprintf("mutantArg%d", len(names)))
			s.edits = append(s.edits, edit{s.offset(field.Type.Pos()), 0, names[len(names)-1] + " "})
		}
		for _, id := range field.Names {
			name := id.Name
			if name == "_" {
				name = fmt.Sprintf("mutantArg%d", len(names))
				s.edits = append(s.edits, edit{s.offset(id.Pos()), 1, name})
			}
			names = append(names, name)
		}
		if _, ok := field.Type.(*ast.Ellipsis); ok {
			names[len(names)-1] += "..."
		}
	}
	s.named[f] = names
	return names
}

// String returns the file's text.
func (s *schema) String() string {
	slices.SortStableFunc(s.edits, func(a, b edit) int { return b.at - a.at })
	text := s.text
	for _, e := range s.edits {
		text = text[:e.at] + e.text + text[e.at+e.n:]
	}
	return text + "\n" + s.copies.String()
}
