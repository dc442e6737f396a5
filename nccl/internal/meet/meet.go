// Package meet has the ranks of a communicator meet before they call NCCL: rank 0
// waits until all have come, and gives each of them a value, NCCL's ID. They meet
// at an address, where rank 0 listens (http.go), or in a folder that all of them
// see (folder.go).
//
// Either all ranks get the value, or each gets an error in the time that its
// context has: who has not come, or why a rank cannot be one of them.
package meet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
		give, get = c.write, c.read
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

// A roll is who has come to a meeting, and who was there once.
type roll struct {
	here, seen []bool // by rank
}

func newRoll(size int) roll { return roll{make([]bool, size), make([]bool, size)} }

// note notes whether a rank is there.
func (r roll) note(rank int, here bool) {
	r.here[rank] = here
	r.seen[rank] = r.seen[rank] || here
}

// full reports whether all are there.
func (r roll) full() bool { return !slices.Contains(r.here, false) }

// others returns the ranks that are there, but rank 0.
func (r roll) others() (ranks []int) {
	for rank, here := range r.here {
		if here && rank > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// absent names the ranks that are not there, those first that never were.
func (r roll) absent() string {
	var never, left []int
	for rank, here := range r.here {
		switch {
		case here:
		case r.seen[rank]:
			left = append(left, rank)
		default:
			never = append(never, rank)
		}
	}
	switch {
	case left == nil:
		return fmt.Sprintf("ranks %s of %d", first(never), len(r.here))
	case never == nil:
		return fmt.Sprintf("ranks %s of %d, which came and left", first(left), len(r.here))
	}
	return fmt.Sprintf("ranks %s of %d; %s came and left", first(never), len(r.here), first(left))
}

// first names the first of many ranks.
func first(ranks []int) string {
	const most = 10
	if n := len(ranks) - most; n > 0 {
		return fmt.Sprintf("%v and %d more", ranks[:most], n)
	}
	return fmt.Sprint(ranks)
}

// missing is the error of a meeting to which some ranks have not come.
func missing(absent string, cause error) error {
	return fmt.Errorf("waiting for %s: %w: %w", absent, dist.ErrRank, cause)
}
