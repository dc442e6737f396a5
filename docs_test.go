package cupool_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every row of docs/features.md says yes for us, by links to Examples or tests
// that are there, and that use what is named behind the link. An Example uses
// what it is called after.
func TestFeatures(t *testing.T) {
	text, err := os.ReadFile("docs/features.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\[(\w+)\]\(\.\./([\w/]+_test\.go)\)(?:: ((?:` + "`\\w+` ?" + `)+))?`)
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		require.Len(t, cells, 10, line)
		links := link.FindAllStringSubmatch(cells[9], -1)
		require.NotEmpty(t, links, line)
		require.Len(t, links, strings.Count(cells[9], "_test.go"), "a damaged link: %s", line)
		for _, l := range links {
			used := usedIn(t, filepath.FromSlash(l[2]), l[1])
			if typ, method, ok := strings.Cut(strings.TrimPrefix(l[1], "Example"), "_"); ok && typ != l[1] && method[0] < 'a' {
				method, _, _ = strings.Cut(method, "_")
				require.Contains(t, used, method, "%s shows no %s", l[1], method)
			}
			for name := range strings.FieldsSeq(strings.ReplaceAll(l[3], "`", " ")) {
				require.Contains(t, used, name, "%s in %s uses no %s", l[1], l[2], name)
			}
		}
	}
	require.Greater(t, rows, 50)
}

// What docs/api.md names of a package, a type or a variable of one is there.
func TestAPINames(t *testing.T) {
	text, err := os.ReadFile("docs/api.md")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, folder := range []string{".", "adaptor", "device", "ipc", "native", "snapshot"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && !strings.HasSuffix(file, "_test.go") {
					names[id.Name] = true
				}
				return true
			})
		}
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range regexp.MustCompile(`\.([A-Z]\w+)|\x60([A-Z][A-Za-z]+)\x60`).FindAllStringSubmatch(cells[2], -1) {
			found++
			require.True(t, names[m[1]+m[2]], "%s: there is no %s", line, m[1]+m[2])
		}
	}
	require.Greater(t, found, 60)
}

// usedIn returns the names that a function of a file selects or sets.
func usedIn(t *testing.T, path, function string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	i := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == function
	})
	require.GreaterOrEqual(t, i, 0, "%s is not in %s", function, path)
	ast.Inspect(f.Decls[i], func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}

// README's first program is the package's Example, which is run.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)

	_, program, ok := strings.Cut(string(readme), "```go\npackage main\n")
	require.True(t, ok, "README has no program")
	_, program, ok = strings.Cut(program, "func main() {\n")
	require.True(t, ok, "README's program has no func main")
	program, _, ok = strings.Cut(program, "\n}\n```")
	require.True(t, ok, "README's program does not end")

	_, example, ok := strings.Cut(string(source), "func Example() {\n")
	require.True(t, ok)
	example, _, ok = strings.Cut(example, "\n\t// Output:")
	require.True(t, ok)
	require.Equal(t, example, program)
}

// The figures at the top of README are those of the pages that it names there.
func TestReadmeFigures(t *testing.T) {
	all := pages(t)
	_, text, ok := strings.Cut(all["README.md"], "<!-- figure -->")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "```go")
	require.True(t, ok)
	measured := all["docs/performance.md"] + all["docs/fragmentation.md"] + all["docs/python.md"]
	figures := regexp.MustCompile(`\b\d[\d,.]*\b`).FindAllString(regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(text, "]"), -1)
	require.Greater(t, len(figures), 15)
	for _, n := range figures {
		n = strings.TrimRight(n, ".,")
		there := regexp.MustCompile(`(^|[^\d.,])` + regexp.QuoteMeta(n) + `($|\D)`).MatchString(measured)
		require.True(t, there, "%s of README.md is on no page", n)
	}
}

// Links between pages lead to files and headings that exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(l[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", page, l[1])
			if heading != "" {
				require.Contains(t, headings(t, target), heading, "%s links to %s", page, l[1])
			}
		}
	}
}

// Commands of the pages name programs, flags, commands of the tool, targets, scripts and paths of the
// page that exist.
func TestCommands(t *testing.T) {
	block := regexp.MustCompile("(?s)```sh\n(.*?)```")
	program := regexp.MustCompile(`(?:go run |^)\./((?:cmd|examples|bench)/\w+|mlp)\b(.*)`)
	tool := regexp.MustCompile(`(?:\./cmd/|^)cupool ([a-z]+)`)
	script := regexp.MustCompile(`(?:^|[ =])((?:bench|capi|python|\.ci|examples)/[\w./]+\.(?:sh|py|c))`)
	target, view := regexp.MustCompile(`^make ([a-z]+)`), regexp.MustCompile(`/debug/cupool/([a-z.]+)`)
	flag := regexp.MustCompile(` -([a-z][\w-]*)`)
	found := 0
	for page, text := range pages(t) {
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(b[1]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " # ")
				if m := program.FindStringSubmatch(line); m != nil {
					found++
					folder := strings.Replace(m[1], "mlp", "examples/mlp", 1)
					folder = strings.Replace(folder, "examples/examples/", "examples/", 1)
					source := sources(t, folder, "examples/internal/*", "cmd/internal/*", "internal/testkit/*")
					for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
						require.True(t, strings.Contains(source, `"`+f[1]+`"`), "%s: no flag -%s: %s", page, f[1], line)
					}
				}
				if m := tool.FindStringSubmatch(line); m != nil && m[1] != "completion" && m[1] != "help" {
					found++
					require.True(t, strings.Contains(sources(t, "cmd/cupool"), `newCommand("`+m[1]), "%s: no command: %s", page, line)
				}
				if m := target.FindStringSubmatch(line); m != nil {
					found++
					require.True(t, strings.Contains(sources(t, "Makefile"), "\n"+m[1]+":"), "%s: no target: %s", page, line)
				}
				if m := view.FindStringSubmatch(line); m != nil {
					found++
					require.True(t, strings.Contains(sources(t, "debug/debug.go"), ".../"+m[1]+" "), "%s: no path: %s", page, line)
				}
				for _, m := range script.FindAllStringSubmatch(line, -1) {
					found++
					info, err := os.Stat(m[1])
					require.NoError(t, err, "%s: %s", page, line)
					require.True(t, !strings.HasSuffix(m[1], ".sh") || info.Mode()&0o100 != 0, "%s: %s is no program", page, m[1])
				}
			}
		}
	}
	require.Greater(t, found, 40)
}

// sources returns the text of files, and of the files of Go in folders.
func sources(t *testing.T, patterns ...string) string {
	var all strings.Builder
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		require.NoError(t, err)
		for _, path := range paths {
			files, err := filepath.Glob(filepath.Join(path, "*.go"))
			require.NoError(t, err)
			for _, file := range append(files, path) {
				text, err := os.ReadFile(file)
				if err == nil { // else a folder
					all.Write(text)
				}
			}
		}
		require.NotEmpty(t, paths, p)
	}
	return all.String()
}

// Tests, benchmarks and Examples that a page names exist.
func TestNamedTests(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`)
	there := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, f := range function.FindAllStringSubmatch(string(source), -1) {
			there[f[1]] = true
		}
		return err
	}))
	require.NotEmpty(t, there)
	name := regexp.MustCompile(`\b(?:Test|Benchmark|Example|Fuzz)[A-Z]\w*…?`)
	for page, text := range pages(t) {
		for _, n := range name.FindAllString(text, -1) {
			if !strings.HasSuffix(n, "…") {
				require.True(t, there[n], "%s names %s", page, n)
			}
		}
	}
}

// pages returns the text of every page, by its path.
func pages(t *testing.T) map[string]string {
	paths, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	all := map[string]string{}
	for _, page := range append(paths, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		all[page] = string(text)
	}
	return all
}

// headings returns the anchors of a page's headings, as GitHub forms them.
func headings(t *testing.T, page string) (anchors []string) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	drop := regexp.MustCompile(`[^\p{L}\p{N}\- ]`)
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "#"); ok {
			title = strings.TrimSpace(strings.TrimLeft(title, "#"))
			anchors = append(anchors, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return anchors
}
