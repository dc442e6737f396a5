package main

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/cupool/cupool/cmd/cupool/internal/top"
)

const topText = `Shows what a program's allocators hold, and what they do, as long as it runs:
memory by state, pool and stream, allocations a second, the parts of the program
that hold most, and the last events. The program serves the page of package debug:

  go run ./examples/mlp -http localhost:6060
  cupool top localhost:6060

URL is where the page is, such as http://localhost:6060/debug/cupool/, which is
also what a host and a port alone mean. Keys: q quits, space pauses, s sorts, tab
changes between lines and labels, + and - change how often is asked. Where the
output is no terminal, the state is printed once.`

// runTop shows a debug page in the terminal.
func runTop(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("top", " URL", topText)
	once := fs.Bool("once", false, "print the state once, as text")
	every := fs.Duration("every", time.Second, "`time` between two questions")
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	switch {
	case fs.NArg() != 1:
		return wrongUsage("it takes one URL, such as localhost:6060")
	case *every < 100*time.Millisecond:
		return wrongUsage("-every %v is less than 100ms", *every)
	}
	if *once || stdout != io.Writer(os.Stdout) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return top.Once(ctx, stdout, fs.Arg(0))
	}
	return top.Watch(ctx, fs.Arg(0), *every)
}
