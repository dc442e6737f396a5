package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

const envText = `Prints the shell commands that set CGO_CFLAGS and CGO_LDFLAGS, and what else
this computer needs for a build with CUDA, of this module or of a program that
uses it. What was chosen, and why, is printed on standard error.

  eval "$(go run github.com/cupool/cupool/cmd/cupool env)"
  go build -tags gpu ./...

cupool run does the same for one command.

A build takes a C compiler. The headers are a CUDA toolkit's if there is one in
CUDA_HOME, CUDA_PATH, PATH (nvcc), /usr/local/cuda*, /opt/cuda, pip's and
conda's packages or /usr/include, else cupool's own. Programs are linked with a
small library that is built here, and look for the driver's when they start; they
start without one, too. In another module than this one, go run -mod=mod adds
what the tool needs to go.sum. What the variables have now is kept behind the new
flags.`

// setupFlags are the flags of the commands that set a build up.
type setupFlags struct {
	toolkit string
	quiet   bool
}

func (f *setupFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&f.toolkit, "cuda", "", `the toolkit's directory, instead of looking for one; "none": cupool's own header`)
	fs.BoolVar(&f.quiet, "q", false, "print nothing on standard error, unless it fails")
}

// setup works the settings out, and says on standard error what they are.
func (f *setupFlags) setup(command string, stderr io.Writer) ([]cudatoolkit.Var, error) {
	var sys cudatoolkit.System
	u, err := sys.Setup(f.toolkit)
	if errors.Is(err, cudatoolkit.ErrNotFound) {
		return nil, fmt.Errorf("%w\nLeave out -cuda to build without a toolkit, by cupool's own header", err)
	}
	if err != nil {
		return nil, err
	}
	if !f.quiet {
		for _, note := range u.Notes {
			fmt.Fprintf(stderr, "cupool %s: %s\n", command, note)
		}
	}
	return u.Vars, nil
}

// runEnv prints the settings.
func runEnv(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("env", "", envText)
	var f setupFlags
	f.add(fs)
	if err := parseAlone(fs, args, stderr); err != nil {
		return err
	}
	vars, err := f.setup("env", stderr)
	if err != nil {
		return err
	}
	for _, v := range vars {
		fmt.Fprintf(stdout, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
	return nil
}

// shellQuote quotes s for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
