package cudatoolkit

import (
	"bytes"
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

// driverArchive builds a libcuda.a to link with, for the functions of a cuda.h,
// and returns its directory. It loads the driver's library when the program
// starts, so that programs start where there is none, too.
func (s System) driverArchive(header, cacheDir string) (dir string, err error) {
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
	source := driverSource(text)
	dir = filepath.Join(cacheDir, "driver-"+digest([]byte(strings.Join(cc, " ")+target()+string(source))))
	path := filepath.Join(dir, "libcuda.a")
	if _, err := os.Stat(path); err == nil {
		return dir, nil
	}
	return dir, replace(path, 0o644, func(tmp string) error {
		object := tmp + ".o"
		defer os.Remove(object)
		if err := tool(source, append(cc, "-c", "-O2", "-fPIC", "-o", object, "-x", "c", "-")...); err != nil {
			return err
		}
		if err := os.Remove(tmp); err != nil { // ar adds to what is there
			return err
		}
		return tool(nil, s.archiver(), "rcs", tmp, object)
	})
}

// archiver returns the program that makes a library of an object file. It comes
// with every linker.
func (s System) archiver() string {
	if _, err := s.look("llvm-ar"); err == nil {
		return "llvm-ar"
	}
	return "ar"
}

// tool runs a compiler or another program on a source.
func tool(source []byte, command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot build a library to link with: %w\n%s", command[0], err, out)
	}
	return nil
}
