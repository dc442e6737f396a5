// Package observe lets an example be looked at: by a page while it runs (-http), and
// by files that PyTorch's viewer and go tool pprof open (-snapshot, -profile).
package observe

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/snapshot"
)

// Options are the flags.
type Options struct {
	HTTP     string // address to serve the page at
	Snapshot string // file
	Profile  string // file
}

// Register adds the flags to fs.
func (o *Options) Register(fs *flag.FlagSet) {
	fs.StringVar(&o.HTTP, "http", "", "serve the debug page of the pool at this `address`, such as localhost:6060, during the run")
	fs.StringVar(&o.Snapshot, "snapshot", "", "write what the pool holds at the end of the run, or when memory ran out, to this `file`, which PyTorch's viewer opens")
	fs.StringVar(&o.Profile, "profile", "", "write who holds memory then to this `file`, which go tool pprof opens")
}

// Config adds to a pool's settings what the flags need: with any of them, every
// allocation is recorded.
func (o *Options) Config(cfg cupool.Config) cupool.Config {
	if *o != (Options{}) {
		cfg.History = &cupool.History{SampleBytes: 1}
	}
	return cfg
}

// A Session is a run that is looked at.
type Session struct {
	o        *Options
	pool     *cupool.Pool
	server   *http.Server // nil: none
	recorded bool
}

// Start begins to look at a pool. The address of the page goes to w. A file that cannot
// be written fails here and not at the end of a long run.
func Start(o *Options, pool *cupool.Pool, w io.Writer) (*Session, error) {
	s := &Session{o: o, pool: pool}
	if err := errors.Join(writable("-snapshot", o.Snapshot), writable("-profile", o.Profile)); err != nil {
		return nil, err
	}
	if o.HTTP == "" {
		return s, nil
	}
	listener, err := net.Listen("tcp", o.HTTP)
	if err != nil {
		return nil, fmt.Errorf("-http %s: %w", o.HTTP, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/cupool/", debug.Handler(pool))
	mux.Handle("/{$}", http.RedirectHandler("/debug/cupool/", http.StatusFound))
	s.server = &http.Server{Handler: mux}
	go func() { _ = s.server.Serve(listener) }() // Close ends it
	_, err = fmt.Fprintf(w, "the pool is at http://%s/debug/cupool/\n", reachable(listener.Addr()))
	return s, err
}

// writable says whether a flag's file can be made, and leaves what is in it.
func writable(flag, name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return f.Close()
}

// reachable is an address that a browser on this computer can open.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	return a.String()
}

// Record writes the files, once. A program calls it while it still holds what it
// worked with. Where an allocation failed, they are of that moment.
func (s *Session) Record() error {
	if s.recorded {
		return nil
	}
	s.recorded = true
	pictures := []cupool.Snapshot{s.pool.Snapshot()}
	for _, private := range s.pool.Pools() {
		pictures = append(pictures, private.Snapshot())
	}
	if oom := s.pool.LastOOM(); oom != nil && oom.Snapshot != nil {
		pictures = []cupool.Snapshot{*oom.Snapshot}
	}
	return errors.Join(
		write(s.o.Snapshot, func(w io.Writer) error { return snapshot.WriteTorch(w, pictures...) }),
		write(s.o.Profile, func(w io.Writer) error { return snapshot.WriteProfile(w, pictures...) }))
}

// write makes a file, unless it has no name.
func write(name string, content func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

// Close writes the files if that was not done, and ends the page.
func (s *Session) Close() error {
	err := s.Record()
	if s.server != nil {
		err = errors.Join(err, s.server.Close())
	}
	return err
}
