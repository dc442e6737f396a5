package cudatoolkit

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

//go:embed wrapper/cuda.h
var wrapper []byte // goes in front of a toolkit's cuda.h

//go:embed driverapi/cuda.h
var driverAPI []byte // takes the place of a toolkit's cuda.h

//go:embed driverapi/driver.c
var driverCode []byte // of the library that programs are linked with

// None, as the name of a toolkit, stands for cupool's own header.
const None = "none"

// own returns the toolkit that needs none installed: cupool's own header. Its
// Root is empty.
func own(cacheDir string) (Toolkit, error) {
	dir, err := writeHeader(cacheDir, driverAPI)
	if err != nil {
		return Toolkit{}, err
	}
	v, err := headerVersion(filepath.Join(dir, "cuda.h"))
	return Toolkit{Version: v, Includes: []string{dir}}, err
}

// writeHeader writes a cuda.h to a directory of its own, named by its
// contents, and returns that.
func writeHeader(cacheDir string, text []byte) (dir string, err error) {
	dir = filepath.Join(cacheDir, "include-"+digest(text))
	return dir, writeOnce(filepath.Join(dir, "cuda.h"), text)
}

// digest names contents.
func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:16] }

// writeOnce writes a file that others may be reading or writing: it appears
// whole.
func writeOnce(path string, text []byte) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == string(text) {
		return nil
	}
	return replace(path, 0o644, func(tmp string) error { return os.WriteFile(tmp, text, 0o644) })
}

// replace has a file made under another name in the same directory, and then
// gives it its own.
func replace(path string, mode os.FileMode, write func(tmp string) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return err
	}
	if err := write(f.Name()); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), mode); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

var functionName = regexp.MustCompile(`\bcu[A-Z]\w*`)

// driverSource is a C file with every function that a cuda.h names, by all of its
// names. Each jumps to the driver's function of that name, which it finds when
// the program starts.
func driverSource(header []byte) []byte {
	names := functionName.FindAllString(string(header), -1)
	slices.Sort(names)
	var c bytes.Buffer
	c.WriteString("#define FUNCTIONS(X)")
	for i, name := range slices.Compact(names) {
		fmt.Fprintf(&c, " \\\n\tX(%d, %s)", i, name)
	}
	c.WriteString("\n\n")
	c.Write(driverCode)
	return c.Bytes()
}
