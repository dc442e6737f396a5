// Package cudalibs knows where the libraries of CUDA are installed that the
// loader does not find by itself: by toolkits, pip, conda and the driver. It
// opens none of them, and needs no CUDA.
package cudalibs

import (
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
)

// Driver is the variable of the environment that names the driver's library to
// open in place of the system's.
const Driver = "CUPOOL_LIBCUDA"

// Candidates returns what to open, in order, for a library that has one of these
// names, the preferred one first: the files beside the library in CUPOOL_LIBCUDA,
// the names alone, for which the loader searches, and the files in the other
// directories. Only files that are there have a directory in front. The directories
// are looked at when nothing before them could be opened. It is safe from several
// goroutines.
func Candidates(names ...string) iter.Seq[string] { return here().candidates(names) }

// A system is a computer to look at.
type system struct {
	goos, goarch string
	root         string // in front of all fixed paths
	getenv       func(string) string
}

func here() system { return system{runtime.GOOS, runtime.GOARCH, "", os.Getenv} }

func (s system) candidates(names []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		beside := s.beside()
		for _, path := range append(files(beside, names), names...) {
			if !yield(path) {
				return
			}
		}
		for _, dir := range s.dirs() {
			if dir == beside {
				continue
			}
			for _, path := range files(dir, names) {
				if !yield(path) {
					return
				}
			}
		}
	}
}

// files returns the paths of those that dir has; none for dir "".
func files(dir string, names []string) (found []string) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil && dir != "" {
			found = append(found, path)
		}
	}
	return found
}

// beside returns the directory of the library in CUPOOL_LIBCUDA; "" where that is
// not set, or has a name alone, for which the loader searches.
func (s system) beside() string {
	path := s.getenv(Driver)
	if path == filepath.Base(path) || path == "" {
		return ""
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return ""
	}
	return dir
}

// dirs returns the directories that are there, in the order in which to look: the one of
// the library in CUPOOL_LIBCUDA, those of toolkits, those of pip's and conda's packages,
// and where drivers put their library outside of the loader's search.
func (s system) dirs() (all []string) {
	add := func(dirs ...string) {
		for _, dir := range dirs {
			if st, err := os.Stat(dir); dir != "" && err == nil && st.IsDir() && !slices.Contains(all, dir) {
				all = append(all, dir)
			}
		}
	}
	add(s.beside())
	for _, root := range s.toolkits() {
		add(s.inToolkit(root)...)
	}
	for _, prefix := range []string{s.getenv("VIRTUAL_ENV"), s.getenv("CONDA_PREFIX"), s.local(), s.root + "/usr/local", s.root + "/usr"} {
		add(s.inPython(prefix)...)
	}
	if s.goos != "windows" {
		add(s.root+"/usr/local/nvidia/lib64", s.root+"/usr/lib/wsl/lib", s.root+"/run/opengl-driver/lib")
	}
	return all
}

// local is where pip installs for one user; "" without a home.
func (s system) local() string {
	if home := s.getenv("HOME"); home != "" {
		return filepath.Join(home, ".local")
	}
	return ""
}

// toolkits returns where toolkits may be; "" where a variable is not set.
func (s system) toolkits() []string {
	roots := []string{s.getenv("CUDA_HOME"), s.getenv("CUDA_PATH")}
	if s.goos == "windows" {
		return roots
	}
	local := s.root + "/usr/local/cuda"
	roots = append(append(roots, local), newestFirst(local+"-*")...)
	return append(roots, s.root+"/opt/cuda")
}

// inToolkit returns where a toolkit has its libraries. CUDA 13 has them in bin/x64
// on Windows, earlier ones in bin.
func (s system) inToolkit(root string) []string {
	if root == "" {
		return nil
	}
	dirs := []string{"lib64", "lib", "targets/" + s.target() + "/lib"}
	if s.goos == "windows" {
		dirs = []string{"bin/x64", "bin"}
	}
	for i := range dirs {
		dirs[i] = filepath.Join(root, dirs[i])
	}
	return dirs
}

// target is CUDA's name of this kind of computer.
func (s system) target() string {
	if s.goarch == "arm64" {
		return "sbsa-linux"
	}
	return "x86_64-linux"
}

// inPython returns where the packages of pip and conda have their libraries,
// given the directory that a Python is installed in. pip has those of CUDA 13 in
// one directory, earlier ones in one for each package.
func (s system) inPython(prefix string) (dirs []string) {
	if prefix == "" {
		return nil
	}
	patterns := []string{"lib/python3*/site-packages/nvidia/*/lib", "lib/python3*/dist-packages/nvidia/*/lib"}
	conda := "lib"
	if s.goos == "windows" {
		patterns = []string{"Lib/site-packages/nvidia/*/bin/x86_64", "Lib/site-packages/nvidia/*/bin"}
		conda = "Library/bin"
	}
	for _, p := range patterns {
		dirs = append(dirs, newestFirst(filepath.Join(prefix, p))...)
	}
	if prefix == s.getenv("CONDA_PREFIX") {
		dirs = append(dirs, filepath.Join(prefix, conda))
	}
	return dirs
}

var numbers = regexp.MustCompile(`\d+`)

// newestFirst returns the paths that match a pattern, those with the highest
// numbers in them first.
func newestFirst(pattern string) []string {
	paths, _ := filepath.Glob(pattern)
	key := func(path string) (ns []int) {
		for _, d := range numbers.FindAllString(path, -1) {
			n, _ := strconv.Atoi(d)
			ns = append(ns, n)
		}
		return ns
	}
	slices.SortStableFunc(paths, func(a, b string) int { return slices.Compare(key(b), key(a)) })
	return paths
}
