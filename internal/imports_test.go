// Package internal_test checks who imports whom.
package internal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "github.com/cupool/cupool"

// layers are the folders of the repository, from the top down; a folder's packages
// are in its layer where no longer name says otherwise. "." is the root alone. A
// package imports those of its own layer and of lower ones.
var layers = []struct{ name, folders string }{
	{"programs", "bench capi cmd examples"},
	{"over the pool", `adaptor arena cupooltest debug devices dist gorgoniavm ipc metrics native nccl nn planner
		internal/blockerr internal/conformance internal/hook internal/model internal/scenarios internal/testkit`},
	{"the pool", "."},
	{"parts", "cuda internal snapshot testdata"},
	{"leaves", `device internal/bytesize internal/callstack internal/clib internal/cublas internal/cudadrv internal/cudalibs internal/leaks
		internal/kernels internal/layers internal/lock internal/ncclapi internal/nvtx internal/philox
		internal/realtime internal/sizeclass`},
}

// few are the modules that few packages may import.
var few = map[string]string{
	"gorgonia.org/cu":       ". internal/cudadrv",
	"gorgonia.org/gorgonia": "gorgoniavm examples",
	"gorgonia.org/tensor":   ". cmd/soak dist examples gorgoniavm internal/tensorop internal/testkit nn",
}

// within reports whether a folder is one of some, or below it, and the length of
// the longest that it is.
func within(folder, folders string) (length int, yes bool) {
	for f := range strings.FieldsSeq(folders) {
		if folder == f || f != "." && strings.HasPrefix(folder, f+"/") {
			length, yes = max(length, len(f)), true
		}
	}
	return length, yes
}

// layer returns the index of a folder's layer, or -1.
func layer(folder string) int {
	best, at := 0, -1
	for i, l := range layers {
		if n, ok := within(folder, l.folders); ok && n > best {
			best, at = n, i
		}
	}
	return at
}

type listed struct {
	ImportPath string
	Imports    []string
	Module     struct{ Path string }
}

// folder returns where a package of the repository is.
func folder(path string) (string, bool) {
	if path == root {
		return ".", true
	}
	return strings.CutPrefix(path, root+"/")
}

// check says what is wrong with an import, if anything: modules are those of the
// packages of the repository.
func check(from, to string, modules map[string]string) error {
	f, _ := folder(from)
	t, own := folder(to)
	if !own {
		for module, folders := range few {
			if _, ok := within(f, folders); !ok && (to == module || strings.HasPrefix(to, module+"/")) {
				return fmt.Errorf("%s imports %s, which only %s may", f, to, folders)
			}
		}
		return nil
	}
	a, b := layer(f), layer(t)
	switch {
	case a < 0 || b < 0:
		return fmt.Errorf("%s imports %s: give both a layer", f, t)
	case b < a:
		return fmt.Errorf("%s (%s) imports %s (%s), which is above it", f, layers[a].name, t, layers[b].name)
	case modules[to] != modules[from] && modules[to] != root && a == b:
		return fmt.Errorf("%s imports %s, which is beside it in another module", f, t)
	}
	return nil
}

func TestImports(t *testing.T) {
	for _, tags := range []string{"", "cu"} {
		out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Module", "-tags="+tags, "work").Output()
		require.NoError(t, err)
		var all []listed
		modules := map[string]string{}
		for d := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p listed
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			all = append(all, p)
			modules[p.ImportPath] = p.Module.Path
		}
		require.Greater(t, len(all), 50)
		for _, p := range all {
			for _, to := range p.Imports {
				if err := check(p.ImportPath, to, modules); err != nil {
					t.Errorf("with -tags=%s: %v", tags, err)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	modules := map[string]string{root + "/metrics/prom": root + "/metrics", root + "/cmd/cupool": root + "/cmd"}
	for name, c := range map[string]struct{ from, to, wrong string }{
		"down":                {root, root + "/internal/heap", ""},
		"beside":              {root + "/internal/heap", root + "/internal/block", ""},
		"up to the pool":      {root + "/internal/heap", root, "which is above it"},
		"up from a leaf":      {root + "/device", root + "/internal/heap", "which is above it"},
		"up to a nested one":  {root, root + "/metrics/prom", "which is above it"},
		"another module":      {root + "/arena", root + "/metrics/prom", "beside it in another module"},
		"of a program":        {root + "/cmd/cupool", root + "/metrics/prom", ""},
		"no layer":            {root + "/util", root, "give both a layer"},
		"few may":             {root + "/internal/heap", "gorgonia.org/tensor/native", "only . cmd/soak"},
		"one of the few":      {root + "/internal/cudadrv/overcu", "gorgonia.org/cu", ""},
		"a module like those": {root + "/internal/heap", "gorgonia.org/cubes", ""},
	} {
		err := check(c.from, c.to, modules)
		if c.wrong == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.wrong, name)
		}
	}
}

// makes are the calls that write files; whoever else writes one for the user takes
// newfile.Write.
var makes = map[string]string{
	"internal/newfile/newfile.go":     "the one place",
	"cmd/soak/meters.go":              "samples of hours, each on the disk at once",
	"cmd/mutants/bench.go":            "its own, in a temporary folder",
	"bench/fragmentation/ablation.go": "its own, in a temporary folder",
	"nccl/internal/meet/folder.go":    "files by which processes meet, in a way of their own",
	"cmd/internal/doctor/machine.go":  "opens device nodes",
}

func TestFilesAreWrittenWhole(t *testing.T) {
	writes := regexp.MustCompile(`\bos\.(Create|WriteFile|OpenFile|CreateTemp)\(`)
	for name, text := range sources(t) {
		if _, known := makes[name]; !known && !strings.HasPrefix(name, "internal/testkit/") && writes.MatchString(text) {
			t.Errorf("%s: write a file for the user with internal/newfile", name)
		}
	}
}

// sources returns the programs of the repository by name, without tests.
func sources(t *testing.T) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		all[filepath.ToSlash(strings.TrimPrefix(name, ".."+string(filepath.Separator)))] = string(text)
		return err
	}))
	require.Greater(t, len(all), 300)
	return all
}
