// Package meet has the ranks of a communicator meet before they call NCCL: rank 0
// waits until all have come, and gives each of them a value, NCCL's ID. They meet
// at an address, where rank 0 listens (http.go), or in a folder that all of them
// see (folder.go).
//
// Either all ranks get the value, or each gets an error in the time that its
// context has: who has not come, or why a rank cannot be one of them.
package meet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// Config says which rank of which communicator this is, and where the ranks meet.
type Config struct {
	Rank, Size             int
	Address, Token, Folder string
	Name                   string // of the communicator
}

// Share returns what draw returns on rank 0, when all ranks have come.
func Share(ctx context.Context, c Config, draw func() ([]byte, error)) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	give, get := c.listen, c.fetch
	if c.Folder != "" {
		give, get = c.hand, c.find
	}
	if c.Rank > 0 {
		return get(ctx)
	}
	value, err := draw()
	if err == nil && c.Size > 1 {
		err = give(ctx, value)
	}
	return value, err
}

// check fails with a *cupool.ConfigError.
func (c Config) check() error {
	bad := func(field string, value any, reason string, args ...any) error {
		return &cupool.ConfigError{Field: field, Value: value, Reason: fmt.Sprintf(reason, args...)}
	}
	simple := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_')
	}
	switch {
	case c.Size < 1:
		return bad("Size", c.Size, "a group has at least one rank")
	case c.Rank < 0 || c.Rank >= c.Size:
		return bad("Rank", c.Rank, "ranks of a group of %d are 0 to %d", c.Size, c.Size-1)
	case len(c.Name) > 64 || strings.ContainsFunc(c.Name, func(r rune) bool { return !simple(r) }):
		return bad("Name", strconv.Quote(c.Name), "it is up to 64 letters, digits, - and _")
	case c.Size == 1:
		return nil
	case (c.Address == "") == (c.Folder == ""):
		return bad("Address, Folder", strconv.Quote(c.Address), "a group of several ranks meets at an address or in a folder")
	case c.Folder != "":
		return nil
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("Token", "(hidden)", "it has printable ASCII characters and no spaces")
	}
	host, port, err := net.SplitHostPort(c.Address)
	if n, errPort := strconv.Atoi(port); err != nil || errPort != nil || n < 1 || n > 65535 || host == "" {
		return bad("Address", strconv.Quote(c.Address), "it is HOST:PORT of rank 0, the same for all ranks, with an IPv6 address in brackets")
	}
	if c.Token == "" && !loopback(host) {
		return bad("Token", "(none)", "without one, ranks meet on their own machine alone, at localhost and not at %s", c.Address)
	}
	return nil
}

// loopback reports whether only this machine reaches a host.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// An ask is what a rank tells rank 0.
type ask struct {
	Rank, Size int
	From       string // its process
}

func (c Config) ask() ask {
	host, _ := os.Hostname() // it is there for errors only
	return ask{Rank: c.Rank, Size: c.Size, From: fmt.Sprintf("process %d on %s", os.Getpid(), host)}
}

// A reply is what rank 0 answers: the value, or what is wrong.
type reply struct {
	Value  []byte
	Field  string // of the rank's Config
	Reason string
}

// open returns the value of a reply, or its error. What a stranger may have
// written is cut and made printable.
func (c Config) open(r reply) ([]byte, error) {
	reason := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, r.Reason[:min(len(r.Reason), 500)])
	switch {
	case len(r.Value) > 0:
		return r.Value, nil
	case r.Field == "Rank":
		return nil, &cupool.ConfigError{Field: "Rank", Value: c.Rank, Reason: reason}
	case r.Field == "Size":
		return nil, &cupool.ConfigError{Field: "Size", Value: c.Size, Reason: reason}
	}
	return nil, fmt.Errorf("%w: rank 0 has given up: %s", dist.ErrRank, reason)
}

// A desk is where rank 0 notes who has come. Its mutex is its users'.
type desk struct {
	Config
	mu      sync.Mutex
	from    []string // by rank: its process; empty: it has not come
	here    int      // those that have
	refused string   // the last one that cannot be a rank, and why
}

func newDesk(c Config) *desk {
	return &desk{Config: c, from: make([]string, c.Size), here: 1}
}

// come notes a rank, or returns why it cannot be one.
func (d *desk) come(a ask) (refusal reply, ok bool) {
	switch {
	case a.Size != d.Size:
		refusal = reply{Field: "Size", Reason: fmt.Sprintf("rank 0 has a group of %d", d.Size)}
	case a.Rank < 0 || a.Rank >= d.Size:
		refusal = reply{Field: "Rank", Reason: fmt.Sprintf("ranks of a group of %d are 0 to %d", d.Size, d.Size-1)}
	case a.Rank == 0:
		refusal = reply{Field: "Rank", Reason: "there is a rank 0"}
	case d.from[a.Rank] != "":
		refusal = reply{Field: "Rank", Reason: "it has come before, as " + d.from[a.Rank]}
	default:
		d.from[a.Rank] = cmp.Or(a.From, "a process")
		d.here++
		return reply{}, true
	}
	d.refused = fmt.Sprintf("%s as rank %d of %d: %s", a.From, a.Rank, a.Size, refusal.Reason)
	return refusal, false
}

// leave forgets a rank that has gone before all were there.
func (d *desk) leave(rank int) {
	if d.from[rank] != "" {
		d.from[rank] = ""
		d.here--
	}
}

// missing is the error of a meeting to which some have not come.
func (d *desk) missing(cause error) error {
	var came, absent []int
	for rank, from := range d.from {
		if from != "" {
			came = append(came, rank)
		} else if rank > 0 {
			absent = append(absent, rank)
		}
	}
	text := fmt.Sprintf("waiting for %s of %d; %s came", names(absent), d.Size, names(came))
	if d.refused != "" {
		text += "; refused was " + d.refused
	}
	return fmt.Errorf("%s: %w: %w", text, dist.ErrRank, cause)
}

// names lists ranks, the first of many.
func names(ranks []int) string {
	const most = 10
	switch {
	case len(ranks) == 0:
		return "no other rank"
	case len(ranks) > most:
		return fmt.Sprintf("ranks %v and %d more", ranks[:most], len(ranks)-most)
	}
	return fmt.Sprintf("ranks %v", ranks)
}
