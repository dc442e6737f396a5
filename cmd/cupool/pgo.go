package main

import (
	_ "embed"

	"github.com/spf13/cobra"
)

const pgoText = `Prints a profile of the allocator for Go's compiler (profile-guided
optimization), which makes allocations faster. Where the program's main package
is,

  go run -mod=mod github.com/cupool/cupool/cmd/cupool pgo > default.pgo

is enough: go build finds the file by its name. -mod=mod adds what the tool needs
to go.sum. A program that has a profile of its own, own.pprof, is built with both:

  go run -mod=mod github.com/cupool/cupool/cmd/cupool pgo > cupool.pgo
  go tool pprof -proto own.pprof cupool.pgo > default.pgo

The first build with a profile compiles all packages anew.`

// profile is where benchmarks of the pool and the engine spend their time;
// "make pgo" makes it.
//
//go:embed cupool.pgo
var profile []byte

func pgoCommand() *cobra.Command {
	c := newCommand("pgo", "print a profile for Go's compiler, which makes allocations faster", pgoText, 0, 0, "")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := cmd.OutOrStdout().Write(profile)
		return err
	}
	return c
}
