package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of a program: was, at an offset of a file, becomes is.
type mutant struct {
	file   string // without its directory
	fn     string // the function around it; empty: none
	line   int
	offset int
	was    string
	is     string
}

// key names a mutant for as long as its function has it, whatever moves above it.
func (m *mutant) key() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s: %s -> %s", m.file, cmp.Or(m.fn, "-"), m.was, m.is)), " ")
}

// applied is the file with the change.
func (m *mutant) applied(text []byte) []byte {
	return slices.Concat(text[:m.offset], []byte(m.is), text[m.offset+len(m.was):])
}

// operators are what each becomes. A comparison moves its boundary, and is turned around.
var operators = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.REM: {token.MUL}, token.AND: {token.OR}, token.OR: {token.AND}, token.AND_NOT: {token.AND},
	token.SHL: {token.SHR}, token.SHR: {token.SHL},
}

// logs are methods whose calls stay: what a log says is not what is judged here.
var logs = []string{"Debug", "Info", "Warn", "Error", "Log"}

// sites lists every mutant of a file, in the order of its text. It knows no types: some do not compile.
func sites(name string, text []byte) ([]mutant, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(f) {
		return nil, nil
	}
	w := walker{name: name, text: text, files: files}
	for _, d := range f.Decls {
		w.fn = ""
		switch d := d.(type) {
		case *ast.FuncDecl:
			w.fn = d.Name.Name
			if d.Body != nil {
				ast.Inspect(d.Body, w.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR || d.Tok == token.CONST {
				ast.Inspect(d, w.visit)
			}
		}
	}
	slices.SortStableFunc(w.found, func(a, b mutant) int { return cmp.Compare(a.offset, b.offset) })
	return w.found, nil
}

type walker struct {
	name  string
	text  []byte
	files *token.FileSet
	fn    string
	found []mutant
}

// change adds the mutant that has is in place of what stands from one position to another.
func (w *walker) change(from, to token.Pos, is string) {
	at := w.files.Position(from)
	w.found = append(w.found, mutant{file: w.name, fn: w.fn, line: at.Line, offset: at.Offset,
		was: string(w.text[at.Offset:w.files.Position(to).Offset]), is: is})
}

// never adds the mutant in which a statement is not executed. It stays in the text, so that no variable or import is
// unused.
func (w *walker) never(s ast.Stmt) {
	from, to := w.files.Position(s.Pos()).Offset, w.files.Position(s.End()).Offset
	w.change(s.Pos(), s.End(), "if false { "+string(bytes.TrimSpace(w.text[from:to]))+" }")
}

func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ArrayType:
		return n.Len == nil // a length is part of a type
	case *ast.BinaryExpr:
		for _, op := range operators[n.Op] {
			w.change(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			w.change(n.OpPos, n.OpPos+1, "")
		}
	case *ast.BasicLit:
		if n.Kind == token.INT || n.Kind == token.FLOAT {
			w.change(n.Pos(), n.End(), "("+n.Value+" + 1)")
		}
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			w.change(n.Pos(), n.End(), map[string]string{"true": "false", "false": "true"}[n.Name])
		}
	case *ast.IfStmt:
		from, to := w.files.Position(n.Cond.Pos()).Offset, w.files.Position(n.Cond.End()).Offset
		w.change(n.Cond.Pos(), n.Cond.End(), "("+string(w.text[from:to])+") && false")
	case ast.Stmt:
		w.statement(n)
		if s, ok := n.(*ast.ExprStmt); ok && isLog(s) {
			return false
		}
	}
	return true
}

func (w *walker) statement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !isLog(n) && !isPanic(call) {
			w.never(n)
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			w.never(n)
		}
	case *ast.IncDecStmt:
		w.change(n.TokPos, n.TokPos+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
			w.never(n)
		}
	case *ast.DeferStmt, *ast.SendStmt:
		w.never(n)
	}
}

func isLog(s *ast.ExprStmt) bool {
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(logs, sel.Sel.Name)
}

// isPanic: without it most functions have no return.
func isPanic(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}
