// Command cupool is the tool of the module github.com/cupool/cupool: it shows
// what a computer has, and what a program does with memory.
//
//	cupool doctor  check what this computer has and lacks for CUDA
//	cupool info    show devices, versions and what is supported
//	cupool replay  replay recorded traces of allocations
//	cupool top     show memory in the terminal
//	cupool view    show memory in the browser
//	cupool diff    say what grew between two memory snapshots
//	cupool pgo     print a profile for Go's compiler
//	cupool version print the version
//
// Its exit status is 0 when all went well, 1 when something failed, and 2 when the
// command line is wrong. What went wrong is on standard error, in a line that begins
// with the command.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool/cmd/internal/printable"
)

const rootText = `Shows what a computer has, and what a program does with GPU memory.

The exit status is 0 when all went well, 1 when something failed, and 2 when the
command line is wrong. What went wrong is on standard error. Flags may stand before
and behind arguments, with one dash or two.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	stderr = printable.Writer(stderr)
	out := &output{Writer: stdout}
	root := newRoot()
	root.SetOut(out)
	root.SetErr(stderr)
	addCobras(root)
	root.SetArgs(dashes(args))
	cmd, err := root.ExecuteContextC(ctx)
	err = cmp.Or(out.err, err) // cobra's help does not look, and others meet it several times
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usageError{}):
		fmt.Fprintf(stderr, "%s: %v (%s -h tells more)\n", cmd.CommandPath(), err, cmd.CommandPath())
		return 2
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	return 1
}

// output is a writer that knows its first error.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

func newRoot() *cobra.Command {
	root := newCommand("cupool", "look at GPU memory", rootText, 0, 0, "")
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return wrongUsage("which command?")
		}
		if cmd.ArgsLenAtDash() == 0 {
			return wrongUsage("a command stands in front of --")
		}
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return wrongUsage("unknown command %q: do you mean %s?", args[0], near[0])
		}
		return wrongUsage("unknown command %q", args[0])
	}
	root.RunE = func(*cobra.Command, []string) error { return nil } // has been refused
	root.SilenceErrors, root.SilenceUsage = true, true              // run prints what is wrong
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(doctorCommand(), infoCommand(), replayCommand(), topCommand(), viewCommand(), diffCommand(), pgoCommand(), versionCommand())
	root.Version = version()
	root.SetVersionTemplate("{{.Version}}\n")
	return root
}

// addCobras adds cobra's own commands, for the output that root has by now, and has them refuse
// arguments that are none of theirs.
func addCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				found, rest, _ := root.Find(args)
				if found == root && len(rest) > 0 {
					return root.Args(root, rest)
				}
				return noArgs(found, rest)
			}
		case "completion":
			for _, shell := range c.Commands() {
				shell.Args = noArgs
			}
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(*cobra.Command, []string) error { return wrongUsage("which shell? bash, zsh, fish or powershell") }
		}
	}
}

// A usageError is a command line that is wrong.
type usageError struct{ error }

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongUsage("unexpected argument %q", args[0])
	}
	return nil
}

func wrongUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// newCommand returns a command that takes so many arguments; most < 0: or more. want says
// what they are, where there are others.
func newCommand(use, short, text string, least, most int, want string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: text, Args: func(c *cobra.Command, args []string) error {
		switch {
		case want == "":
			return noArgs(c, args)
		case len(args) < least, most >= 0 && len(args) > most:
			return wrongUsage("%s", want)
		}
		return nil
	}}
}

var singleDash = regexp.MustCompile(`^-[a-z]{2}`)

// dashes makes two dashes of one in front of the names of flags, as Go's programs have
// them. For no arguments it returns an empty list, as nil has cobra take the process's.
func dashes(args []string) []string {
	all := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(all, args[i:]...)
		}
		if singleDash.MatchString(a) {
			a = "-" + a
		}
		all = append(all, a)
	}
	return all
}
