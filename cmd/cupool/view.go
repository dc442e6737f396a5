package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool/cmd/internal/printable"
)

func viewCommand() *cobra.Command {
	c := newCommand("view SOURCE", "show memory in the browser", "Shows the memory of a program or of a file in the browser.\n\n"+fmt.Sprintf(sourceText, "view")+
		"\n\nThe page of a file is served on an address of this computer until the tool is interrupted.", 1, 1, wantSource)
	addr := c.Flags().String("addr", "localhost:0", "`address` to listen at, for a file")
	quiet := c.Flags().Bool("no-browser", false, "print the address, and open no browser")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *addr == "" { // which net.Listen takes for all addresses of the computer
			return wrongUsage("-addr is empty: it is an address such as localhost:0")
		}
		ctx := cmd.Context()
		p, err := openPage(ctx, args[0], *addr)
		if err != nil {
			return err
		}
		until := ""
		if p.serve != nil {
			until = " until you press Ctrl-C"
		}
		if _, err := fmt.Fprintf(printable.Writer(cmd.OutOrStdout()), "%s is at %s%s\n", p.name, p.url, until); err != nil {
			return err
		}
		if !*quiet {
			if err := openURL(ctx, p.url); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "cupool view: no browser was opened: %v\n", err)
			}
		}
		if p.serve == nil {
			return nil
		}
		return p.serve(ctx)
	}
	return c
}

// openURL opens the browser.
func openURL(ctx context.Context, url string) error {
	open := map[string][]string{"windows": {"rundll32", "url.dll,FileProtocolHandler"}, "darwin": {"open"}}[runtime.GOOS]
	if open == nil {
		open = []string{"xdg-open"}
	}
	cmd := exec.CommandContext(ctx, open[0], append(open[1:], url)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // the browser says itself what is wrong
	return nil
}
