package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/cupool/cupool/cmd/internal/printable"
	"github.com/cupool/cupool/cmd/internal/replay"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/trace"
	"github.com/cupool/cupool/snapshot"
)

const viewText = `Shows a memory snapshot, or a trace, in the browser: the page of package debug, for a
file. A snapshot is what snapshot.WriteTorch wrote or a Snapshot as JSON, or
PyTorch's (torch.cuda.memory._dump_snapshot), with gzip or without. A trace, which is
what cupool replay takes, is replayed up to the event at which it requests most.

The page is served on an address of this computer until the program is interrupted.`

// runView serves the page for a file.
func runView(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("view", " SNAPSHOT|TRACE", viewText)
	addr := fs.String("addr", "localhost:0", "`address` to listen at")
	quiet := fs.Bool("no-browser", false, "print the address, and open no browser")
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return wrongUsage("which file?")
	}
	pools, err := readView(ctx, fs.Arg(0))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(*addr); err == nil {
		debug.AllowHosts(host) // a name that leads here, as the listener has it
	}
	url := "http://" + l.Addr().String() + "/"
	fmt.Fprintf(printable.Writer(stdout), "%s is at %s until you press Ctrl-C\n", filepath.Base(fs.Arg(0)), url)
	if !*quiet {
		if err := openURL(ctx, url); err != nil {
			fmt.Fprintf(stderr, "cupool view: no browser was opened: %v\n", err)
		}
	}
	return debug.Serve(ctx, l, debug.SnapshotHandler(filepath.Base(fs.Arg(0)), pools...))
}

// readView reads a snapshot, or replays a trace.
func readView(ctx context.Context, name string) ([]snapshot.Snapshot, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	pools, noSnapshot := snapshot.Read(bytes.NewReader(data))
	if noSnapshot == nil {
		return pools, nil
	}
	t, err := trace.Read(bytes.NewReader(data), name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; nor a trace: %w", name, noSnapshot, err)
	}
	p, err := replay.AtPeak(ctx, t, replay.Options{})
	return []snapshot.Snapshot{p}, err
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
