package gate

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// Patience is how long a connection may take to send a request, and to begin the
	// next one.
	Patience = 10 * time.Second
	// Answer is how long it takes at most until an answer of Run is made and read.
	Answer = time.Minute
	// HeaderBytes is the length of a request's header, up to which net/http adds 4 KiB.
	HeaderBytes = 8 << 10
)

// NewServer returns a server of HTTP that Serve bounds. It serves h.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:        h,
		ReadTimeout:    Patience,
		IdleTimeout:    Patience,
		MaxHeaderBytes: HeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // strangers fill no log
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, guestKey{}, c.(*conn).guest)
		},
	}
}

// Serve has s, of NewServer, serve the connections of l, which wait at a Gate. It
// closes l, and ends as http.Server.Serve does.
func Serve(s *http.Server, l net.Listener) error {
	g := &listener{Listener: l, closed: make(chan struct{})}
	defer g.Close()
	return s.Serve(g)
}

type guestKey struct{}

// Of returns the guest that sends a request to a server of NewServer.
func Of(r *http.Request) *Guest { return r.Context().Value(guestKey{}).(*Guest) }

// listener is a listener whose connections wait at a gate.
type listener struct {
	net.Listener
	gate   Gate
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := Accept(&l.gate, l.closed, func(error, time.Duration) {}, l.Listener.Accept)
	if err != nil {
		return nil, err
	}
	return &conn{c, l.gate.Come(c, l.closed)}, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// conn is a connection that leaves the gate when it is closed.
type conn struct {
	net.Conn
	guest *Guest
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.guest.Leave()
	return c.Conn.Close()
}

// Run serves h at l until ctx is done, when it returns nil, or until l fails. It closes
// l. A connection waits between two requests; there are Waiting at most, those that
// have a request under way included.
func Run(ctx context.Context, l net.Listener, h http.Handler) error {
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Of(r).Wait()
		h.ServeHTTP(w, r)
	}))
	s.WriteTimeout = Answer
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // Serve returns its error
	if err := Serve(s, l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
