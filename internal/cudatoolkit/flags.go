package cudatoolkit

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed wrapper/cuda.h
var wrapper []byte

// Flags are the values of the two variables that cgo reads.
type Flags struct {
	CFLAGS, LDFLAGS string
	// Warning says what is missing, or "".
	Warning string
}

// goDefault is what cgo uses when a variable is not set.
const goDefault = "-g -O2"

// Flags returns what to set to build with t. It writes the wrapper header,
// and links to libraries that have only versioned names, under cacheDir. That
// way it works for programs that depend on this module too, whose copy of it
// lies somewhere in Go's module cache or in a vendor directory.
func (s System) Flags(t Toolkit, cacheDir string) (Flags, error) {
	w, err := writeWrapper(cacheDir)
	if err != nil {
		return Flags{}, err
	}
	var f Flags
	cflags := []string{"-I" + w}
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
	dirs, warning, err := s.driverLibrary(t, filepath.Join(cacheDir, "lib"))
	if err != nil {
		return Flags{}, err
	}
	for _, dir := range dirs {
		if !slices.Contains(ldflags, "-L"+dir) {
			ldflags = append(ldflags, "-L"+dir)
		}
	}
	f.Warning = warning
	f.CFLAGS = s.join("CGO_CFLAGS", cflags)
	f.LDFLAGS = s.join("CGO_LDFLAGS", ldflags)
	return f, nil
}

// writeWrapper writes the wrapper header to a directory of its own, named by
// its contents, and returns that.
func writeWrapper(cacheDir string) (string, error) {
	dir := filepath.Join(cacheDir, fmt.Sprintf("include-%x", sha256.Sum256(wrapper))[:24])
	path := filepath.Join(dir, "cuda.h")
	if b, err := os.ReadFile(path); err == nil && string(b) == string(wrapper) {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, ".cuda.h-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(wrapper); err != nil {
		return "", err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return "", err
	}
	if err := tmp.Close(); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp.Name(), path)
}

// driverLibrary returns directories to link libcuda and libcublas from,
// beside the toolkit's. The driver installs libcuda.so.1, and only some
// packages the libcuda.so that -lcuda looks for; toolkits have a stub of it.
// In pip's packages the same is true of libcublas.
func (s System) driverLibrary(t Toolkit, linkDir string) (dirs []string, warning string, err error) {
	system := s.libraryDirs()
	all := append(slices.Clone(t.LibDirs), system...)
	if at := dirWith(all, "libcuda.so"); at != "" {
		dirs = append(dirs, at)
	} else if real := newest(all, "libcuda.so.1"); real != "" {
		if err := link(linkDir, "libcuda.so", real); err != nil {
			return nil, "", err
		}
		dirs = append(dirs, linkDir)
	} else {
		warning = "libcuda.so is neither in the toolkit (stubs) nor in the system's library directories: programs will compile but not link"
	}
	if dirWith(all, "libcublas.so") == "" {
		if real := newest(all, "libcublas.so.[0-9]*"); real != "" {
			if err := link(linkDir, "libcublas.so", real); err != nil {
				return nil, "", err
			}
			dirs = append(dirs, linkDir)
		}
	}
	return dirs, warning, nil
}

// libraryDirs returns where drivers are installed.
func (s System) libraryDirs() []string {
	var dirs []string
	for _, d := range filepath.SplitList(s.env("LD_LIBRARY_PATH")) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	for _, d := range []string{"/usr/lib/" + runtimeTriplet(), "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"} {
		dirs = append(dirs, s.Root+d)
	}
	return dirs
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
	for i, f := range flags {
		if strings.ContainsAny(f, " \t'") {
			flags[i] = `"` + f + `"`
		}
	}
	now := s.env(variable)
	if now == "" {
		now = goDefault
	}
	for _, f := range strings.Fields(now) {
		if !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	return strings.Join(flags, " ")
}
