package cudatoolkit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Setup is what has to be in the environment to build and run with CUDA.
type Setup struct {
	Vars  []Var
	Notes []string // what was chosen and why, a line each
}

// A Var is a variable of the environment.
type Var struct{ Name, Value string }

func (u *Setup) set(name, value string) { u.Vars = append(u.Vars, Var{name, value}) }

func (u *Setup) note(format string, args ...any) {
	u.Notes = append(u.Notes, fmt.Sprintf(format, args...))
}

// Setup chooses a toolkit, or cupool's own header where there is none, and a
// compiler. toolkit is the directory of the one to take, None, or "" to look
// for one. It fails with ErrNoCompiler, and with ErrNotFound where the
// directory has no cuda.h.
func (s System) Setup(toolkit string) (Setup, error) {
	var u Setup
	cc, err := s.Compiler()
	if err != nil {
		return u, err
	}
	cache, err := CacheDir()
	if err != nil {
		return u, err
	}
	t, why, err := s.choose(toolkit, cache)
	if err != nil {
		return u, err
	}
	f, err := s.Flags(t, cache)
	if err != nil {
		return u, err
	}
	u.note("headers: %s", why)
	u.set("CGO_CFLAGS", f.CFLAGS)
	u.set("CGO_LDFLAGS", f.LDFLAGS)
	if s.env("CC") == "" && cc[0] != "gcc" {
		u.note("CC=%s, as there is no gcc", cc[0])
		u.set("CC", cc[0])
	}
	if s.env("CGO_ENABLED") == "0" {
		u.note("CGO_ENABLED=1, as a build with CUDA needs cgo")
		u.set("CGO_ENABLED", "1")
	}
	if s.Library("libcuda.so.1") == "" {
		u.note("no NVIDIA driver here: programs build, and run where one is (https://www.nvidia.com/drivers; in a container, start it with --gpus all)")
	}
	if path := s.libraryPath(); path != "" {
		u.note("LD_LIBRARY_PATH=%s, where the loader does not look by itself", path)
		u.set("LD_LIBRARY_PATH", path)
	}
	return u, nil
}

// choose returns the toolkit to build with, and says which it is and why.
func (s System) choose(toolkit, cache string) (t Toolkit, why string, err error) {
	if toolkit != None {
		t, err = s.Find(toolkit)
		if err == nil {
			return t, fmt.Sprintf("CUDA %s in %s", t.VersionString(), t.Root), nil
		}
		if toolkit != "" || !errors.Is(err, ErrNotFound) {
			return t, "", err
		}
		why = ", as there is no toolkit (CUDA_HOME would name one)"
	}
	t, err = own(cache)
	return t, fmt.Sprintf("cupool's own, of CUDA %s, in %s%s", t.VersionString(), strings.Join(t.Includes, ""), why), err
}

// atRun are libraries that programs load when they run.
var atRun = []string{"libcuda.so.1", "libcublas.so.*"}

// libraryPath returns an LD_LIBRARY_PATH that has, beside what it has now, the
// directories of these libraries where the loader would not find them; "" when
// nothing is to be added.
func (s System) libraryPath() string {
	now := filepath.SplitList(s.env("LD_LIBRARY_PATH"))
	dirs := slices.Clone(now)
	for _, pattern := range atRun {
		path := s.Library(pattern)
		if path == "" || slices.Contains(s.loaderDirs(), filepath.Dir(path)) || slices.Contains(dirs, filepath.Dir(path)) {
			continue
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	if len(dirs) == len(now) {
		return ""
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// Library returns the path of a library that programs load when they run, the
// newest whose name matches the pattern, or "". It looks where the loader
// does, in the toolkit, and in the packages of pip and conda.
func (s System) Library(pattern string) string {
	dirs := s.libraryDirs()
	if t, err := s.Find(""); err == nil {
		for _, dir := range t.LibDirs {
			if filepath.Base(dir) != "stubs" {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, site := range s.sitePackages() {
		dirs = append(dirs, newestFirst(s.glob(filepath.Join(site, "nvidia/*/lib")))...)
	}
	if conda := s.env("CONDA_PREFIX"); conda != "" {
		dirs = append(dirs, filepath.Join(conda, "lib"))
	}
	return newest(dirs, pattern)
}
