package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// The operators:
//
//	negate  a condition, an operand of && and ||, or what is returned or assigned
//	drop    a statement
//	off     by one: an integer constant and one more, < and <=, > and >=
//	swap    two statements one after the other of which one calls, or two arguments
//	        of one type
//
// A mutant does not copy its function: its edits wrap what it changes.

// finder finds the mutants of one declaration.
type finder struct {
	*schema
	f        *source
	function string
	results  bool       // whether it returns any
	parents  []ast.Node // of the node that is visited, from the declaration down
}

// find adds the mutants of a file.
func (s *schema) find(f *source) {
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				name := d.Name.Name
				if d.Recv != nil {
					start, end := s.span(d.Recv.List[0].Type)
					name = fmt.Sprintf("(%s).%s", f.text[start:end], name)
				}
				(&finder{schema: s, f: f, function: name, results: d.Type.Results != nil}).walk(d.Body)
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				for _, x := range v.Values {
					(&finder{schema: s, f: f, function: v.Names[0].Name}).walk(x)
				}
			}
		}
	}
}

func (w *finder) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			w.parents = w.parents[:len(w.parents)-1]
			return true
		}
		down := w.visit(n)
		if down {
			w.parents = append(w.parents, n)
		}
		return down
	})
}

// text returns a node's text in the file.
func (w *finder) text(n ast.Node) string {
	start, end := w.span(n)
	return w.f.text[start:end]
}

// add adds a mutant that changes a node, or what is between two.
func (w *finder) add(operator string, from, to ast.Node) *mutant {
	start, _ := w.span(from)
	_, end := w.span(to)
	at := w.fset.Position(from.Pos())
	text := strings.Join(strings.Fields(w.f.text[start:end]), " ")
	if len(text) > 100 {
		text = text[:100]
	}
	m := &mutant{
		pkg: w.path, function: w.function, operator: operator, text: text, file: w.f, start: start, end: end,
		place: fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line),
	}
	w.mutants = append(w.mutants, m)
	return m
}

// wrap puts texts around a node.
func (w *finder) wrap(m *mutant, n ast.Node, before, after string) {
	start, end := w.span(n)
	w.f.edits = append(w.f.edits, edit{start, 0, before, false, m}, edit{end, 0, after, true, m})
}

// visit adds the mutants at a node, and reports whether those below it count, too.
func (w *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ArrayType:
		return n.Len == nil
	case *ast.BlockStmt:
		w.list(n, n.List)
	case *ast.CaseClause:
		w.list(n, n.Body)
		if s, ok := w.parents[len(w.parents)-2].(*ast.SwitchStmt); ok && s.Tag == nil {
			for _, x := range n.List {
				w.condition(x)
			}
		}
	case *ast.CommClause:
		w.list(n, n.Body)
	case *ast.IfStmt:
		w.condition(n.Cond)
	case *ast.ForStmt:
		w.condition(n.Cond)
	case *ast.ReturnStmt:
		w.booleans(n.Results)
	case *ast.AssignStmt:
		w.booleans(n.Rhs)
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND, token.LOR:
			w.condition(n.X)
			w.condition(n.Y)
		case token.LSS, token.LEQ, token.GTR, token.GEQ:
			w.compare(n)
		}
	case *ast.CallExpr:
		w.arguments(n)
	}
	if x, ok := n.(ast.Expr); ok && w.info.Types[x].Value != nil {
		w.constant(x)
		return false
	}
	return true
}

// condition negates one that is not made of others.
func (w *finder) condition(x ast.Expr) {
	switch y := x.(type) {
	case nil:
		return
	case *ast.ParenExpr:
		w.condition(y.X)
		return
	case *ast.BinaryExpr:
		if y.Op == token.LAND || y.Op == token.LOR {
			return // visit comes to its operands
		}
	}
	if w.info.Types[x].Value == nil {
		w.wrap(w.add("negate", x, x), x, "(", ") != mutant("+numberMark+")")
	}
}

// booleans negates those of a list's expressions that are true or false.
func (w *finder) booleans(list []ast.Expr) {
	for _, x := range list {
		if b, ok := w.info.TypeOf(x).(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
			w.condition(x)
		}
	}
}

// compare moves the border of a comparison.
func (w *finder) compare(n *ast.BinaryExpr) {
	if w.info.Types[n].Value != nil {
		return
	}
	name := map[token.Token]string{token.LSS: "mutantLess", token.LEQ: "mutantUpTo", token.GTR: "mutantOver", token.GEQ: "mutantFrom"}[n.Op]
	m := w.add("off", n, n)
	w.wrap(m, n, name+"("+numberMark+", ", ")")
	w.f.edits = append(w.f.edits, edit{w.fset.Position(n.OpPos).Offset, len(n.Op.String()), ",", false, m})
}

// constant adds one to an integer.
func (w *finder) constant(x ast.Expr) {
	t := w.info.Types[x].Type
	b, ok := t.Underlying().(*types.Basic)
	if !ok || b.Info()&types.IsInteger == 0 || b.Info()&types.IsUntyped != 0 {
		return
	}
	w.wrap(w.add("off", x, x), x, fmt.Sprintf("mutantOff[%s](%s, ", w.typeName(t), numberMark), ")")
}

// typeName returns how the file writes a type.
func (w *finder) typeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == w.pkg {
			return ""
		}
		for _, i := range w.f.file.Imports {
			if strings.Trim(i.Path.Value, "`\"") == p.Path() && i.Name != nil {
				return i.Name.Name
			}
		}
		return p.Name()
	})
}

// list drops the statements of a list, and swaps neighbours.
func (w *finder) list(of ast.Node, list []ast.Stmt) {
	for i, s := range list {
		if !w.simple(s) {
			continue
		}
		if ends := terminates(s); !ends || i < len(list)-1 || w.followed(of) {
			m := w.add("drop", s, s)
			m.returns = ends
			w.wrap(m, s, "if !mutant("+numberMark+") { ", " }")
		}
		if i > 0 && moves(list[i-1]) && moves(s) && (calls(list[i-1]) || calls(s)) && w.text(s) != w.text(list[i-1]) {
			m := w.add("swap", list[i-1], s)
			start, _ := w.span(list[i-1])
			w.f.edits = append(w.f.edits, edit{start, 0, fmt.Sprintf("if mutant(%s) { %s }; ", numberMark, w.text(s)), false, m})
			w.wrap(m, s, "if !mutant("+numberMark+") { ", " }")
		}
	}
}

// simple reports whether a statement can be dropped: whatever it defines, others
// need.
func (w *finder) simple(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !allBlank(s.Lhs)
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.BranchStmt, *ast.ReturnStmt:
		return true
	}
	return false
}

func allBlank(list []ast.Expr) bool {
	for _, x := range list {
		if id, ok := x.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// moves reports whether a statement can change places with its neighbour.
func moves(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt:
		return !terminates(s)
	}
	return false
}

// calls reports whether a call is in a statement.
func calls(s ast.Stmt) (yes bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		_, ok := n.(*ast.CallExpr)
		yes = yes || ok
		return !yes
	})
	return yes
}

// terminates reports whether nothing after a statement runs, so that a function
// may end with it.
func terminates(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		id, ok := call.Fun.(*ast.Ident)
		return ok && id.Name == "panic"
	}
	return false
}

// followed reports whether a way through the function goes on after the last
// statement of a list: whether a statement around it has another after it.
func (w *finder) followed(child ast.Node) bool {
	for i := len(w.parents) - 1; i >= 0; i-- {
		var list []ast.Stmt
		switch n := w.parents[i].(type) {
		case *ast.FuncLit:
			return n.Type.Results == nil
		case *ast.ForStmt:
			return true
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		switch child.(type) {
		case *ast.CaseClause, *ast.CommClause: // those after it are other ways
		default:
			if len(list) > 0 && list[len(list)-1] != child {
				return true
			}
		}
		child = w.parents[i]
	}
	return !w.results
}

// arguments swaps two neighbours of one type that do nothing when they are read.
func (w *finder) arguments(n *ast.CallExpr) {
	if f := w.info.Types[n.Fun]; f.IsType() || f.IsBuiltin() || w.info.Types[n].Value != nil {
		return
	}
	for i := 1; i < len(n.Args); i++ {
		a, b := n.Args[i-1], n.Args[i]
		ta, tb := w.info.Types[a].Type, w.info.Types[b].Type
		if ta == nil || tb == nil || !types.Identical(ta, tb) || !plain(a) || !plain(b) || w.text(a) == w.text(b) {
			continue
		}
		if n.Ellipsis.IsValid() && i == len(n.Args)-1 {
			continue
		}
		m := w.add("swap", a, b)
		open := fmt.Sprintf("mutantPick[%s](%s, ", w.typeName(ta), numberMark)
		w.wrap(m, a, open, ", "+w.text(b)+")")
		w.wrap(m, b, open, ", "+w.text(a)+")")
	}
}

// plain reports whether an expression can be read twice: names and constants.
func plain(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return plain(x.X)
	}
	return false
}
