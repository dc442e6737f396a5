package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

const runText = `Runs a command with everything set up for a build with CUDA, as cupool env
prints it:

  go run github.com/cupool/cupool/cmd/cupool run -- go test -tags gpu ./...

The command gets the signals, and its exit status is the status of cupool run.`

// runRun runs a command.
func runRun(_ context.Context, args []string, _, stderr io.Writer) error {
	fs := newFlags("run", " [--] COMMAND [arguments]", runText)
	var f setupFlags
	f.add(fs)
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return wrongUsage("which command?")
	}
	vars, err := f.setup("run", stderr)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(fs.Arg(0))
	if err != nil {
		return err
	}
	return become(path, fs.Args(), withVars(os.Environ(), vars))
}

// withVars returns an environment with variables set, each of them once.
func withVars(env []string, vars []cudatoolkit.Var) []string {
	for _, v := range vars {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, v.Name+"=") })
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}
