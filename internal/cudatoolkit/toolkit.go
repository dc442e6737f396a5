// Package cudatoolkit finds an installed CUDA toolkit and says how cgo has to
// be called to build with it. It needs no CUDA itself.
package cudatoolkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A Toolkit is CUDA's headers and the libraries to link.
type Toolkit struct {
	Root     string   // "" for cupool's own header
	Version  int      // CUDA_VERSION of cuda.h: 1000*major + 10*minor
	Includes []string // directories, in order
	LibDirs  []string // directories with libraries, in order
}

// VersionString prints the version as 13.0.
func (t Toolkit) VersionString() string {
	return fmt.Sprintf("%d.%d", t.Version/1000, t.Version%1000/10)
}

// ErrNotFound: no toolkit is installed where Find looks.
var ErrNotFound = errors.New("no CUDA toolkit found")

// A System is where to look. The zero System is this computer.
type System struct {
	Root   string                       // in front of all fixed paths; for tests
	Getenv func(string) string          // nil: os.Getenv
	Look   func(string) (string, error) // nil: exec.LookPath
}

func (s System) env(name string) string {
	if s.Getenv != nil {
		return s.Getenv(name)
	}
	return os.Getenv(name)
}

func (s System) look(name string) (string, error) {
	if s.Look != nil {
		return s.Look(name)
	}
	return exec.LookPath(name)
}

// Find returns the first toolkit among: dir when it is not empty, and then
// only that; CUDA_HOME, CUDA_PATH; the nvcc in PATH; /usr/local/cuda,
// /usr/local/cuda-* (newest first), /opt/cuda; pip's and conda's packages;
// /usr/include. The error wraps ErrNotFound and lists where it looked.
func (s System) Find(dir string) (Toolkit, error) {
	roots := s.roots()
	if dir != "" {
		roots = []string{dir}
	}
	var tried []string
	for _, r := range roots {
		// cgo runs the compiler elsewhere.
		r, err := filepath.Abs(r)
		if err != nil {
			return Toolkit{}, err
		}
		t, err := at(r)
		if err == nil {
			return t, nil
		}
		tried = append(tried, r)
	}
	return Toolkit{}, fmt.Errorf("%w: no include/cuda.h in %s", ErrNotFound, strings.Join(tried, ", "))
}

func (s System) roots() []string {
	var rs []string
	add := func(r ...string) {
		for _, r := range r {
			if r != "" && !slices.Contains(rs, r) {
				rs = append(rs, r)
			}
		}
	}
	add(s.env("CUDA_HOME"), s.env("CUDA_PATH"))
	if nvcc, err := s.look("nvcc"); err == nil {
		if real, err := filepath.EvalSymlinks(nvcc); err == nil {
			nvcc = real
		}
		add(filepath.Dir(filepath.Dir(nvcc)))
	}
	local := s.Root + "/usr/local/cuda"
	add(local)
	add(newestFirst(s.glob(local + "-*"))...)
	add(s.Root + "/opt/cuda")
	add(s.packages()...)
	add(s.Root + "/usr")
	return rs
}

// packages returns the places where pip and conda put CUDA: the wheels of
// CUDA 13 in one directory, those of 11 and 12 in one each.
func (s System) packages() []string {
	var rs []string
	for _, site := range s.sitePackages() {
		rs = append(rs, newestFirst(s.glob(filepath.Join(site, "nvidia/cu[0-9]*")))...)
		rs = append(rs, newestFirst(s.glob(filepath.Join(site, "nvidia/cuda_runtime")))...)
	}
	if conda := s.env("CONDA_PREFIX"); conda != "" {
		rs = append(rs, conda)
	}
	return rs
}

// sitePackages returns the directories that pip installs to.
func (s System) sitePackages() []string {
	prefixes := []string{s.env("VIRTUAL_ENV"), s.env("CONDA_PREFIX")}
	if home := s.env("HOME"); home != "" {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
	}
	prefixes = append(prefixes, s.Root+"/usr/local", s.Root+"/usr")
	var dirs []string
	for _, p := range prefixes {
		if p == "" {
			continue
		}
		for _, lib := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"} {
			dirs = append(dirs, s.glob(filepath.Join(p, lib))...)
		}
	}
	return dirs
}

func (s System) glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

var numbers = regexp.MustCompile(`\d+`)

// newestFirst sorts paths by the numbers in them, highest first.
func newestFirst(paths []string) []string {
	key := func(p string) (ns []int) {
		for _, d := range numbers.FindAllString(p, -1) {
			n, _ := strconv.Atoi(d)
			ns = append(ns, n)
		}
		return ns
	}
	slices.SortStableFunc(paths, func(a, b string) int { return slices.Compare(key(b), key(a)) })
	return paths
}

// at returns the toolkit in root, or ErrNotFound.
func at(root string) (Toolkit, error) {
	for _, inc := range []string{"include", filepath.Join("targets", target(), "include")} {
		dir := filepath.Join(root, inc)
		v, err := headerVersion(filepath.Join(dir, "cuda.h"))
		if err != nil {
			continue
		}
		t := Toolkit{Root: root, Version: v, Includes: []string{dir}}
		t.addIfDir(&t.Includes, filepath.Join(dir, "cccl"))
		for _, lib := range []string{"lib64", "lib", filepath.Join("targets", target(), "lib"), filepath.Join("lib", runtimeTriplet())} {
			t.addIfDir(&t.LibDirs, filepath.Join(root, lib))
			t.addIfDir(&t.LibDirs, filepath.Join(root, lib, "stubs"))
		}
		if filepath.Base(root) == "cuda_runtime" { // a wheel of CUDA 11 or 12
			for _, other := range []string{"cublas", "cuda_nvcc", "nvtx"} {
				t.addIfDir(&t.Includes, filepath.Join(filepath.Dir(root), other, "include"))
				t.addIfDir(&t.LibDirs, filepath.Join(filepath.Dir(root), other, "lib"))
			}
		}
		return t, nil
	}
	return Toolkit{}, ErrNotFound
}

func (t *Toolkit) addIfDir(to *[]string, dir string) {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		*to = append(*to, dir)
	}
}

var versionLine = regexp.MustCompile(`(?m)^\s*#\s*define\s+CUDA_VERSION\s+(\d+)`)

// headerVersion reads CUDA_VERSION from cuda.h. A cuda.h without one is some
// other file.
func headerVersion(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	m := versionLine.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("%s defines no CUDA_VERSION", path)
	}
	return strconv.Atoi(string(m[1]))
}

// target is CUDA's name of this computer's kind.
func target() string {
	if runtime.GOARCH == "arm64" {
		return "sbsa-linux"
	}
	return "x86_64-linux"
}

// runtimeTriplet is Debian's name of it.
func runtimeTriplet() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}
