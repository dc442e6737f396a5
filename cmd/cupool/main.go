// Command cupool is the tool of the module github.com/cupool/cupool: it shows
// what a computer has, and what a program does with memory.
//
//	cupool doctor  check what this computer has and lacks for CUDA
//	cupool info    show devices, versions and what is supported
//	cupool replay  replay recorded traces of allocations
//	cupool top     show a running program's memory in the terminal
//	cupool view    show a snapshot or a trace in the browser
//	cupool diff    say what grew between two memory snapshots
//	cupool pgo     print a profile for Go's compiler
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/cupool/cupool/cmd/internal/printable"
)

// A command is one subcommand. run gets the arguments after its name; an
// error is printed, and ends the program with status 1, or with 2 when it is a
// usageError.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands, in the order of the help text.
var commands = []command{
	{"doctor", "check what this computer has and lacks for CUDA", runDoctor},
	{"info", "show devices, versions and what is supported", runInfo},
	{"replay", "replay recorded traces of allocations", runReplay},
	{"top", "show a running program's memory in the terminal", runTop},
	{"view", "show a snapshot or a trace in the browser", runView},
	{"diff", "say what grew between two memory snapshots", runDiff},
	{"pgo", "print a profile for Go's compiler, which makes allocations faster", runPGO},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(stdout)
		return 0
	}
	for _, c := range commands {
		if c.name == args[0] {
			stderr = printable.Writer(stderr)
			return status1(c.name, c.run(ctx, args[1:], stdout, stderr), stderr)
		}
	}
	fmt.Fprintf(stderr, "cupool: unknown command %q\n\n", args[0])
	usage(stderr)
	return 2
}

func status1(name string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usageError{}):
		fmt.Fprintf(stderr, "cupool %s: %v (cupool %s -h tells more)\n", name, err, name)
		return 2
	}
	fmt.Fprintf(stderr, "cupool %s: %v\n", name, err)
	return 1
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: cupool COMMAND [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\ncupool COMMAND -h tells more.\n")
}
