package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cmd/cupool/internal/top"
	"github.com/cupool/cupool/cmd/internal/replay"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/trace"
	"github.com/cupool/cupool/snapshot"
)

// sourceText says what top and view show.
const sourceText = `SOURCE is a running program, or a file.

A program serves the page of package debug. It is named by the page's URL, such as
http://localhost:6060/debug/cupool/, which a host and a port alone mean, too:

  go run ./examples/mlp -http localhost:6060
  cupool %[1]s localhost:6060

A file is a memory snapshot: what snapshot.WriteTorch wrote or a Snapshot as JSON, or
PyTorch's (torch.cuda.memory._dump_snapshot), with gzip or without. Or it is a trace,
which is what cupool replay takes. It is replayed up to the event at which it requests
most.`

const wantSource = "it takes one SOURCE: a URL such as localhost:6060, or a file"

// A page is the debug page of a program, or of a file, for which it is served here.
type page struct {
	url, name string
	serve     func(context.Context) error // nil: the program does that
}

// openPage finds the page of a source. That of a file is served at an address.
func openPage(ctx context.Context, source, addr string) (*page, error) {
	if isAddress(source) {
		url, err := top.Find(ctx, source)
		return &page{url: url, name: source}, err
	}
	pools, err := readView(ctx, source)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(addr); err == nil {
		debug.AllowHosts(host) // a name that leads here, as the listener has it
	}
	name := filepath.Base(source)
	return &page{
		url: "http://" + l.Addr().String() + "/", name: name,
		serve: func(ctx context.Context) error { return debug.Serve(ctx, l, debug.SnapshotHandler(name, pools...)) },
	}, nil
}

// isAddress reports whether a source is a URL, or a host and a port, and no file.
func isAddress(source string) bool {
	if _, err := os.Stat(source); err == nil {
		return false
	}
	_, port, err := net.SplitHostPort(source)
	return strings.Contains(source, "://") || err == nil && port != ""
}

// readView reads a snapshot, or replays a trace.
func readView(ctx context.Context, name string) ([]snapshot.Snapshot, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var seen bytes.Buffer // a pipe is read once
	pools, noSnapshot := snapshot.Read(io.TeeReader(f, &seen))
	if noSnapshot == nil {
		return pools, nil
	}
	var damage *snapshot.FormatError
	if errors.As(noSnapshot, &damage) && strings.Contains(damage.Field, "[") { // of a list: its events alone would show another picture
		return nil, fmt.Errorf("%s: %w", name, noSnapshot)
	}
	t, err := trace.Read(io.MultiReader(&seen, f), name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; nor a trace: %w", name, noSnapshot, err)
	}
	p, err := replay.AtPeak(ctx, t, replay.Options{Config: cupool.Config{NoEnvironment: true}}) // the file looks the same everywhere
	return []snapshot.Snapshot{p}, err
}
