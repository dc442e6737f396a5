package internal_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What of a package's names opens a socket, or is one.
var sockets = regexp.MustCompile(`^(net\.(Listen\w*|Dial\w*|Dialer|\w*Listener|UnixConn)|http\.(Server|Client|Serve\w*|ListenAndServe\w*|Get|Post|Handle|HandleFunc))$`)

// What reads or makes a file.
var fileCalls = regexp.MustCompile(`^os\.(Open|OpenFile|OpenRoot|ReadFile|ReadDir|Stat|Lstat|Create|CreateTemp|WriteFile|Rename|Remove|RemoveAll|Mkdir\w*|DirFS)$`)

// The variables that programs of this kind read.
var variable = regexp.MustCompile(`^(CUPOOL|CUDA|NVTX|MASTER|SLURM|PYTORCH|TORCHELASTIC|CONDA|JOB|LOCAL|WORLD|VIRTUAL)_[A-Z0-9_]+$|^RANK$`)

// bounded are the files with limits for strangers, and how these are called.
var bounded = regexp.MustCompile(`^(snapshot/torch_read|debug/(crowd|json|server)|cmd/cupool/internal/top/client|nccl/internal/meet/http|ipc/(wire|serve)|internal/(gate/\w+|pickle/read|gunzip/gunzip|trace/\w+|mnist/idx))\.go$`)
var limit = regexp.MustCompile(`^(most|max|Max|Fixed$|Factor$|text|ask|patience$|bufferSize$|Waiting$|Grace$|Patience$|Answer$|HeaderBytes$)`)

// found is what the programs of the repository have, by the table that names it.
type found map[string]map[string]string

func (f found) add(table, name, value string) {
	if f[table] == nil {
		f[table] = map[string]string{}
	}
	f[table][name] = value
}

// tools are programs of developers.
var tools = regexp.MustCompile(`^(internal/(testkit|fakecuda|model|scenarios|conformance|mnist/subset)|cmd/mutants|cmd/internal/pagetest|cupooltest)/`)

func edges(t *testing.T) found {
	f := found{}
	for name, text := range sources(t) {
		if tools.MatchString(name) {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		folder := path.Dir(name)
		source := func(n ast.Node) string { return text[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset] }
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if sockets.MatchString(source(n)) {
					f.add("Sockets", folder, "")
				}
				if fileCalls.MatchString(source(n)) {
					f.add("Files", folder, "")
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && variable.MatchString(s) {
					f.add("Variables", s, "")
				}
			case *ast.Field:
				for _, id := range n.Names {
					if id.Name == "Token" && source(n.Type) == "string" {
						f.add("Tokens", folder, "")
					}
				}
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if ok && bounded.MatchString(name) && limit.MatchString(v.Names[0].Name) && len(v.Values) == 1 {
						f.add("Limits", folder+"."+v.Names[0].Name, strings.Join(strings.Fields(source(v.Values[0])), " "))
					}
				}
			}
			return true
		})
	}
	return f
}

// tables reads what SECURITY.md says: the names in the first column of each table, and
// the value in the second one of the limits.
func tables(t *testing.T) found {
	text, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	f, table := found{}, ""
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			table = strings.TrimSpace(name)
		}
		cells := strings.Split(line, "|")
		if table == "" || len(cells) < 4 {
			continue
		}
		value := ""
		if m := quoted.FindStringSubmatch(cells[2]); m != nil && table == "Limits" {
			value = m[1]
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			f.add(table, m[1], value)
		}
	}
	return f
}

// SECURITY.md names every socket, token, variable, file and limit, and nothing that is
// gone.
func TestSecurity(t *testing.T) {
	have, said := edges(t), tables(t)
	names := func(m map[string]string) (list []string) {
		for name, value := range m {
			list = append(list, strings.TrimSpace(name+" "+value))
		}
		slices.SortFunc(list, cmp.Compare[string])
		return list
	}
	for _, table := range []string{"Sockets", "Tokens", "Variables", "Files", "Limits"} {
		t.Run(table, func(t *testing.T) { require.Equal(t, names(have[table]), names(said[table])) })
	}
}
