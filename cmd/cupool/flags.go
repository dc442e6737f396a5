package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// A usageError is a command line that is wrong.
type usageError struct{ error }

func wrongUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// newFlags returns the flags of a command that takes arguments, such as "FILE",
// behind them; text explains it.
func newFlags(name, arguments, text string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run prints what is wrong
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "usage: cupool %s [flags]%s\n\n%s\n\n", name, arguments, text)
		fs.PrintDefaults()
	}
	return fs
}

// parse reads a command line. Where help is asked for, it prints that.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stderr)
		fs.Usage()
	case err != nil:
		return usageError{err}
	}
	return err
}

// parseAlone is parse for a command that takes no arguments.
func parseAlone(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	err := parse(fs, args, stderr)
	if err == nil && fs.NArg() > 0 {
		return wrongUsage("unexpected argument %q", fs.Arg(0))
	}
	return err
}
