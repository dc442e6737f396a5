package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cupool/cupool/cmd/cupool/internal/top"
)

const topText = `Shows memory in the terminal: by state, pool and stream, allocations a second, the
parts of the program that hold most, and the last events.

` + sourceText + `

Keys: q quits, space pauses, s sorts, tab changes between lines and labels, + and -
change how often is asked. Where the output is no terminal, or SOURCE a file, the state
is printed once.`

const jsonUsage = "print JSON"

func topCommand() *cobra.Command {
	c := newCommand("top SOURCE", "show memory in the terminal", fmt.Sprintf(topText, "top"), 1, 1, wantSource)
	once := c.Flags().Bool("once", false, "print the state once, as text")
	asJSON := c.Flags().Bool("json", false, "print the state once, as JSON")
	every := c.Flags().Duration("every", time.Second, "`time` between two questions")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *every < 100*time.Millisecond {
			return wrongUsage("-every %v is less than 100ms", *every)
		}
		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		p, err := openPage(ctx, args[0], "localhost:0")
		if err != nil {
			return err
		}
		var title string
		if p.serve != nil {
			title = p.name // the page ends with the command
			go func() { _ = p.serve(ctx) }()
		}
		out := cmd.OutOrStdout()
		if *once || *asJSON || p.serve != nil || out.(*output).Writer != os.Stdout || !term.IsTerminal(int(os.Stdout.Fd())) {
			return top.Once(ctx, out, p.url, title, *asJSON)
		}
		return top.Watch(ctx, p.url, *every)
	}
	return c
}
