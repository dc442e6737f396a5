package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

var errUsage = errors.New("wrong usage")

// newFlags returns a flag set of a command that takes no arguments beside its
// flags; text explains it. parse turns what flag has printed into errUsage.
func newFlags(name, text string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("cupool "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "usage: cupool %s [flags]\n\n%s\n\n", name, text)
		fs.PrintDefaults()
	}
	return fs
}

func parse(fs *flag.FlagSet, args []string) error {
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(fs.Output(), "unexpected argument %q\n", fs.Arg(0))
		fs.Usage()
		return errUsage
	}
	return nil
}

// parseFlags is parse for a command that takes arguments too.
func parseFlags(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errors.Join(errUsage, err)
}
