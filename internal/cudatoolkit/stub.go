package cudatoolkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNoCompiler: there is no C compiler, which every build with CUDA needs.
var ErrNoCompiler = errors.New("no C compiler: install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc), or name one in CC")

// Compiler returns the C compiler that cgo is to call, with its arguments: CC,
// or the first of gcc, clang and cc that is in PATH. It fails with
// ErrNoCompiler.
func (s System) Compiler() ([]string, error) {
	if cc := strings.Fields(s.env("CC")); len(cc) > 0 {
		if _, err := s.look(cc[0]); err != nil {
			return nil, fmt.Errorf("CC=%s is not there (%w): %w", cc[0], err, ErrNoCompiler)
		}
		return cc, nil
	}
	for _, cc := range []string{"gcc", "clang", "cc"} {
		if _, err := s.look(cc); err == nil {
			return []string{cc}, nil
		}
	}
	return nil, ErrNoCompiler
}

// stub builds a libcuda.so to link with, for the functions of a cuda.h, and
// returns its directory. It has the name that the driver's library has for
// programs, libcuda.so.1, so that those look for the driver's when they run.
func (s System) stub(header, cacheDir string) (dir string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("builds with CUDA need Linux (on Windows, WSL 2); without -tags gpu everything runs on the host device")
	}
	cc, err := s.Compiler()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(header)
	if err != nil {
		return "", err
	}
	source := stubSource(text)
	dir = filepath.Join(cacheDir, "stub-"+digest([]byte(strings.Join(cc, " ")+target()+string(source))))
	path := filepath.Join(dir, "libcuda.so")
	if _, err := os.Stat(path); err == nil {
		return dir, nil
	}
	return dir, replace(path, 0o755, func(tmp string) error {
		args := append(cc[1:], "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", tmp, "-x", "c", "-")
		cmd := exec.Command(cc[0], args...)
		cmd.Stdin = strings.NewReader(string(source))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s cannot build a library to link with: %w\n%s", cc[0], err, out)
		}
		return nil
	})
}
