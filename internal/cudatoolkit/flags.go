package cudatoolkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Flags are the values of the two variables that cgo reads.
type Flags struct {
	CFLAGS, LDFLAGS string
	Driver          string // what libcuda is linked from, in words
}

// goDefault is what cgo uses when a variable is not set.
const goDefault = "-g -O2"

// Flags returns what to set to build with t. It writes the wrapper header,
// links to libraries that have only versioned names, and where there is no
// libcuda a library to link with, under cacheDir. That way it works for
// programs that depend on this module too, whose copy of it lies somewhere in
// Go's module cache or in a vendor directory.
func (s System) Flags(t Toolkit, cacheDir string) (Flags, error) {
	var f Flags
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
	var ldflags []string
	for _, dir := range t.LibDirs {
		if filepath.Base(dir) != "stubs" {
			ldflags = append(ldflags, "-L"+dir)
		}
	}
	dirs, from, err := s.driverLibrary(t, cacheDir)
	if err != nil {
		return Flags{}, err
	}
	for _, dir := range dirs {
		if !slices.Contains(ldflags, "-L"+dir) {
			ldflags = append(ldflags, "-L"+dir)
		}
	}
	f.Driver = from
	f.CFLAGS = s.join("CGO_CFLAGS", cflags)
	f.LDFLAGS = s.join("CGO_LDFLAGS", ldflags)
	return f, nil
}

// driverLibrary returns directories to link libcuda and libcublas from,
// beside the toolkit's, and says which libcuda it is. The driver installs
// libcuda.so.1, and only some packages the libcuda.so that -lcuda looks for;
// toolkits have a stub of it. In pip's packages the same is true of libcublas.
func (s System) driverLibrary(t Toolkit, cacheDir string) (dirs []string, from string, err error) {
	all := append(slices.Clone(t.LibDirs), s.libraryDirs()...)
	linkDir := filepath.Join(cacheDir, "lib")
	if at := dirWith(all, "libcuda.so"); at != "" {
		dirs, from = append(dirs, at), filepath.Join(at, "libcuda.so")
	} else if real := newest(all, "libcuda.so.1"); real != "" {
		if err := link(linkDir, "libcuda.so", real); err != nil {
			return nil, "", err
		}
		dirs, from = append(dirs, linkDir), real
	} else {
		stub, err := s.stub(filepath.Join(t.Includes[0], "cuda.h"), cacheDir)
		if err != nil {
			return nil, "", err
		}
		dirs, from = append(dirs, stub), "a stub built here, as there is no libcuda.so.1"
	}
	if dirWith(all, "libcublas.so") == "" {
		if real := newest(all, "libcublas.so.[0-9]*"); real != "" {
			if err := link(linkDir, "libcublas.so", real); err != nil {
				return nil, "", err
			}
			dirs = append(dirs, linkDir)
		}
	}
	return dirs, from, nil
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
