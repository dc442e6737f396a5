package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

const envText = `Prints the shell commands that set CGO_CFLAGS and CGO_LDFLAGS for a build with
CUDA, of this module or of a program that uses it:

  eval "$(go run github.com/cupool/cupool/cmd/cupool env)"
  go build -tags gpu ./...

In another module than this one, go run -mod=mod adds what the tool needs to
go.sum. It works without CUDA being set up, looks for the toolkit in CUDA_HOME,
CUDA_PATH, PATH (nvcc), /usr/local/cuda*, /opt/cuda, pip's and conda's packages
and /usr/include, and fails where there is none. What the variables have now is
kept behind the new flags.`

// runEnv prints the settings.
func runEnv(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("env", envText, stderr)
	dir := fs.String("cuda", "", "the toolkit's directory, instead of looking for one")
	verbose := fs.Bool("v", false, "say on standard error which toolkit it is")
	if err := parse(fs, args); err != nil {
		return err
	}
	var sys cudatoolkit.System
	t, err := sys.Find(*dir)
	if err != nil {
		return fmt.Errorf("%w\nInstall one (its headers are enough to build), or name its directory with -cuda or CUDA_HOME.\nWithout CUDA the module works on the host device; leave out -tags gpu", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no place for the wrapper header: %w", err)
	}
	f, err := sys.Flags(t, filepath.Join(cache, "cupool"))
	if err != nil {
		return err
	}
	if *verbose {
		fmt.Fprintf(stderr, "cupool env: CUDA %s in %s\n", t.VersionString(), t.Root)
	}
	if f.Warning != "" {
		fmt.Fprintf(stderr, "cupool env: %s\n", f.Warning)
	}
	fmt.Fprintf(stdout, "export CGO_CFLAGS=%s\nexport CGO_LDFLAGS=%s\n", shellQuote(f.CFLAGS), shellQuote(f.LDFLAGS))
	return nil
}

// shellQuote quotes s for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
