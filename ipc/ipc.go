// Package ipc shares blocks of package cupool's caching allocator with other processes
// of one computer. The exporter gives a block a name, and an importer opens it by that
// name over a Unix socket that the program gives:
//
//	server, err := ipc.NewServer(pool, ipc.Config{})
//	go server.Serve(ctx, listener)
//	share, err := server.Share("weights", block, stream)
//
//	client, err := ipc.Connect(ctx, pool, conn, ipc.Config{})
//	weights, err := client.Open(ctx, "weights")
//	defer weights.Close(ctx)
//
// # Memory
//
// Both processes see the same memory, at addresses of their own. The importer maps
// what is shared and no more than has to be: of virtual memory the handles that the block
// touches, which are of 2 MiB or more and may hold other blocks, and of segments
// (cupool.BackingSegments) the whole segment. The exporter's device has to be opened for
// it: cuda.Shareable, or HostConfig.Shareable for the host device. CUDA shares
// segments without.
//
// # Order
//
// An importer's Open returns when what the exporter had given to the stream of
// Share, until then, is done. Memory.Close waits for the work of the
// importer's streams before it tells the exporter. In between, the processes order
// their work themselves.
//
// # Life
//
// The exporter does not reuse the memory before all importers have closed it, whoever
// frees the block (Pool.Hold): a block that is freed is pending. A process that ends
// or is killed has closed what it had open. One that only loses its connection has
// it until it ends, as it still can use the memory. When the exporter ends, Client.Done
// tells, and the importers' mappings stay valid until they close them: of virtual memory
// and of the host device. Of CUDA's segments CUDA does not promise it: work that uses
// them then, or closes them, may fail, also so that the context is lost
// (ErrDeviceLost). An exporter of segments should end after Server.Close.
//
// # Trust
//
// Both ends check who the other is, by the socket's credentials: a process of
// another user is refused, unless Config says otherwise. A process that may open a block can
// write it. The socket has to be connected by the process that uses it; one that
// was made by another process (socketpair) is refused.
//
// Who connects has 30 seconds for its hello. 1,024 connections at most wait for it: one
// more ends the one that has waited longest. Messages have 1 KiB at most. One process has
// 256 connections at most: one more ends its oldest over which nothing is open, and is
// refused where there is none.
//
// It takes Linux 5.3. Elsewhere NewServer and Connect fail with cupool.ErrNotSupported.
package ipc

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// The errors of this package, beside those of package cupool.
var (
	// ErrRefused: the process at the other end is not one that may be.
	ErrRefused = errors.New("refused")
	// ErrUnknownName: nothing is shared under the name.
	ErrUnknownName = errors.New("nothing is shared under this name")
	// ErrProtocol: the other end does not speak this package's protocol, or another
	// version of it.
	ErrProtocol = errors.New("protocol error")
	// ErrGone: the process at the other end is gone.
	ErrGone = errors.New("the other process is gone")
)

// Config says who may connect. The zero Config is a good one.
type Config struct {
	// UIDs are the users whose processes may connect. nil: this process's own.
	UIDs []int
	// PIDs are the processes that may connect. nil: all of those users.
	PIDs []int
	// MaxOpen is how much one process may have open at once. 0: 4096. A Client
	// does not look at it.
	MaxOpen int
	// Logger is told of processes that are refused or that end without closing what
	// they opened. nil: nobody is.
	Logger *slog.Logger
}

// defaultMaxOpen is Config.MaxOpen of 0.
const defaultMaxOpen = 4096

func (c Config) withDefaults() (Config, error) {
	if c.MaxOpen < 0 {
		return c, &cupool.ConfigError{Field: "MaxOpen", Value: c.MaxOpen, Reason: "must not be negative; 0 means 4096"}
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = defaultMaxOpen
	}
	if c.UIDs == nil {
		c.UIDs = []int{os.Geteuid()}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// admit fails with ErrRefused for a process that may not be at the other end.
func (c *Config) admit(p Peer) error {
	switch {
	case p.PID <= 0:
		return fmt.Errorf("cupool: ipc: the process at the other end cannot be seen from here, as it has another PID namespace: %w", ErrRefused)
	case !slices.Contains(c.UIDs, p.UID):
		return fmt.Errorf("cupool: ipc: process %d is of user %d, which Config.UIDs does not have: %w", p.PID, p.UID, ErrRefused)
	case c.PIDs != nil && !slices.Contains(c.PIDs, p.PID):
		return fmt.Errorf("cupool: ipc: process %d is not one of Config.PIDs: %w", p.PID, ErrRefused)
	}
	return nil
}

// Peer is a process at the other end of a connection.
type Peer struct{ PID, UID int }

// Use is one opening of shared memory by another process.
type Use struct {
	Name  string // of the share
	Peer  Peer
	Bytes int64
	Since time.Time
	Cut   bool // its connection has ended, and the process has not
}

// BusyError says that other processes have memory open. It matches Err.
type BusyError struct {
	Uses []Use
	Err  error // the cause of the context that was done
}

// Error lists who holds what, a line each, ten at most.
func (e *BusyError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: ipc: other processes have memory open %d times: %v; wait for them, or call Force", len(e.Uses), e.Err)
	for i, u := range e.Uses {
		if i == 10 {
			sb.WriteString("\n  ...")
			break
		}
		fmt.Fprintf(&sb, "\n  process %d (user %d): %q, %d bytes, since %s", u.Peer.PID, u.Peer.UID, u.Name, u.Bytes, u.Since.Format(time.RFC3339))
		if u.Cut {
			sb.WriteString(", without a connection")
		}
	}
	return sb.String()
}

// Unwrap returns Err.
func (e *BusyError) Unwrap() error { return e.Err }

// sharing returns the part of a pool's device that shares memory.
func sharing(c *cupool.Pool) (device.RangeSharing, error) {
	if c.Driver() == nil {
		return nil, &cupool.ConfigError{Field: "pool", Reason: "memory is of one that cupool.New has made"}
	}
	d, ok := c.Driver().(device.RangeSharing)
	if !ok {
		return nil, fmt.Errorf("cupool: ipc: %s shares no memory with other processes: %w", c.Driver().Name(), cupool.ErrNotSupported)
	}
	return d, nil
}

// nothing is the error of a handle that is nil, or that this package did not make.
func nothing(what string) error {
	return fmt.Errorf("cupool: ipc: the %s is nil, or this package did not make it: %w", what, cupool.ErrInvalidHandle)
}
