// Package observe lets one look at the pool of an example: on a page while it
// runs (-http), and in files that PyTorch's viewer and go tool pprof open
// (-snapshot, -profile).
package observe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/newfile"
	"github.com/cupool/cupool/snapshot"
)

// Options are the flags.
type Options struct {
	HTTP     string // address of the page
	Snapshot string // file
	Profile  string // file
}

// Register adds the flags to fs.
func (o *Options) Register(fs *flag.FlagSet) {
	fs.StringVar(&o.HTTP, "http", "", "serve the debug page of the pool at this `address`, such as localhost:6060, during the run")
	fs.StringVar(&o.Snapshot, "snapshot", "", "write what the pool holds at the end of the run, or when memory ran out, to this `file`, which PyTorch's viewer opens")
	fs.StringVar(&o.Profile, "profile", "", "write who holds memory then to this `file`, which go tool pprof opens")
}

// Config adds to a pool's settings that it warns on the program's standard error, and what
// the flags need: with any of them, every allocation is recorded.
func (o *Options) Config(cfg cupool.Config) cupool.Config {
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if *o != (Options{}) {
		cfg.History = &cupool.History{SampleBytes: 1}
	}
	return cfg
}

// Serve begins to serve the page, if that is asked for, and prints its address to
// w. A call of stop ends it.
func (o *Options) Serve(pool *cupool.Pool, w io.Writer) (stop func() error, err error) {
	if o.HTTP == "" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", o.HTTP)
	if err != nil {
		return nil, fmt.Errorf("-http %s: %w", o.HTTP, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/cupool/", debug.Handler(pool))
	mux.Handle("/{$}", http.RedirectHandler("/debug/cupool/", http.StatusFound))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- debug.Serve(ctx, listener, mux) }()
	fmt.Fprintf(w, "the pool is at http://%s/debug/cupool/\n", listener.Addr())
	return func() error { cancel(); return <-served }, nil
}

// Write writes the files that are asked for. A program calls it while it still
// holds what it worked with. Where allocations have failed, the files are of the
// first such moment.
func (o *Options) Write(pool *cupool.Pool) error {
	seen := pool.Snapshot()
	if oom := pool.FirstOOM(); oom != nil {
		seen = *oom.Snapshot
	}
	return errors.Join(
		write(o.Snapshot, func(w io.Writer) error { return snapshot.WriteTorch(w, seen) }),
		write(o.Profile, func(w io.Writer) error { return snapshot.WriteProfile(w, seen) }))
}

// write makes a file, unless it has no name.
func write(name string, content func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	return newfile.Write(name, content)
}
