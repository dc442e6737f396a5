package cudatoolkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Flags are the values of the two variables that cgo reads.
type Flags struct{ CFLAGS, LDFLAGS string }

// goDefault is what cgo uses when a variable is not set.
const goDefault = "-g -O2"

// Flags returns what to set to build with t. It writes the wrapper header, the
// library that takes the place of libcuda, and a link to a libcublas that has
// only a versioned name, under cacheDir. That way it works for programs that
// depend on this module too, whose copy of it lies somewhere in Go's module
// cache or in a vendor directory.
func (s System) Flags(t Toolkit, cacheDir string) (Flags, error) {
	var cflags []string
	if t.Root != "" { // cupool's own header needs no wrapper
		w, err := writeHeader(cacheDir, wrapper)
		if err != nil {
			return Flags{}, err
		}
		cflags = append(cflags, "-I"+w)
	}
	for _, dir := range t.Includes {
		if dir != "/usr/include" { // the compiler looks there anyway, and last
			cflags = append(cflags, "-I"+dir)
		}
	}
	driver, err := s.driverArchive(filepath.Join(t.Includes[0], "cuda.h"), cacheDir)
	if err != nil {
		return Flags{}, err
	}
	ldflags := []string{"-L" + driver} // first, as a toolkit has a libcuda.so
	for _, dir := range t.LibDirs {
		if filepath.Base(dir) != "stubs" {
			ldflags = append(ldflags, "-L"+dir)
		}
	}
	blas, err := s.linkToBlas(t, cacheDir)
	if err != nil {
		return Flags{}, err
	}
	if blas != "" {
		ldflags = append(ldflags, "-L"+blas)
	}
	return Flags{s.join("CGO_CFLAGS", cflags), s.join("CGO_LDFLAGS", ldflags)}, nil
}

// linkToBlas makes the libcublas.so that -lcublas looks for where there are
// only versioned names, as in pip's packages, and returns its directory; "" where
// there is nothing to be done.
func (s System) linkToBlas(t Toolkit, cacheDir string) (dir string, err error) {
	all := append(slices.Clone(t.LibDirs), s.libraryDirs()...)
	real := newest(all, "libcublas.so.[0-9]*")
	if real == "" || dirWith(all, "libcublas.so") != "" {
		return "", nil
	}
	dir = filepath.Join(cacheDir, "lib")
	return dir, link(dir, "libcublas.so", real)
}

// libraryDirs returns where drivers are installed.
func (s System) libraryDirs() []string {
	var dirs []string
	for _, d := range filepath.SplitList(s.env("LD_LIBRARY_PATH")) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	dirs = append(dirs, s.loaderDirs()...)
	for _, d := range []string{"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"} {
		dirs = append(dirs, s.Root+d)
	}
	return dirs
}

// loaderDirs returns where the loader looks in any case.
func (s System) loaderDirs() []string {
	return []string{s.Root + "/usr/lib/" + runtimeTriplet(), s.Root + "/usr/lib64", s.Root + "/usr/lib"}
}

func dirWith(dirs []string, name string) string {
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, name)); err == nil {
			return d
		}
	}
	return ""
}

func newest(dirs []string, pattern string) string {
	for _, d := range dirs {
		if found, _ := filepath.Glob(filepath.Join(d, pattern)); len(found) > 0 {
			return newestFirst(found)[0]
		}
	}
	return ""
}

// link makes dir/name point to a file.
func link(dir, name, to string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if now, err := os.Readlink(path); err == nil && now == to {
		return nil
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(tmp)
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// join puts the flags in front of those that the variable has already, or of
// Go's default. cgo splits the value at spaces outside of quotes.
func (s System) join(variable string, flags []string) string {
	now := s.env(variable)
	if now == "" {
		now = goDefault
	}
	for _, f := range words(now) {
		if !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	for i, f := range flags {
		switch {
		case !strings.ContainsAny(f, " \t'\""):
		case strings.Contains(f, `"`):
			flags[i] = "'" + f + "'"
		default:
			flags[i] = `"` + f + `"`
		}
	}
	return strings.Join(flags, " ")
}

// words splits at spaces outside of quotes, as cgo does. Both kinds of quotes
// stand around whole flags, and there are no escapes.
func words(s string) []string {
	var ws []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		end := " \t\n"
		if s[0] == '"' || s[0] == '\'' {
			end, s = s[:1], s[1:]
		}
		i := strings.IndexAny(s, end)
		if i < 0 {
			return append(ws, s)
		}
		ws, s = append(ws, s[:i]), s[i+1:]
	}
	return ws
}
