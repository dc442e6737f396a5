// Table puts the results of bench/peers.sh into one table: ours beside
// PyTorch's and cudaMallocAsync's, how many times faster ours is, and the goal.
//
//	table [-format markdown|json] [-pytorch FILE] [-async FILE] OURS
//
// The files have the format of Go's benchmarks. Several results of one
// benchmark are given as their median, with the least and the largest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cupool/cupool/bench/internal/results"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "table: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("table", flag.ContinueOnError)
	format := fs.String("format", "markdown", "`format`: markdown or json")
	pytorch := fs.String("pytorch", "", "`file` with PyTorch's results; without it that column is empty")
	async := fs.String("async", "", "`file` with cudaMallocAsync's results, likewise")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return errors.New("no file with our results (usage: table [flags] OURS)")
	}
	write, ok := map[string]func(io.Writer, report) error{"markdown": writeMarkdown, "json": writeJSON}[*format]
	if !ok {
		return fmt.Errorf("-format is markdown or json, not %q", *format)
	}
	ours, err := results.ReadFiles(fs.Args()...)
	if err != nil {
		return err
	}
	peers := [2]*results.Results{}
	for i, name := range []string{*pytorch, *async} {
		var names []string
		if name != "" {
			names = append(names, name)
		}
		if peers[i], err = results.ReadFiles(names...); err != nil {
			return err
		}
	}
	return write(out, newReport(ours, peers[0], peers[1]))
}
