package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/columns"
	"github.com/cupool/cupool/snapshot"
)

const (
	mostEvents  = 40               // that are kept
	askedEvents = 200              // that are asked for: some are of the asking itself
	askTimeout  = 10 * time.Second // for all of a question
	defaultPath = "/debug/cupool/" // of an address without a path
)

// mostBytes are those of each answer of the page, which may be anybody's, and
// mostPools is how many pools are asked for. A column of a block has some 4 bytes.
var mostBytes = map[string]int64{"pools": 1 << 20, "stats": 16 << 20, "blocks": 128 << 20, "events": 4 << 20, "oom": 1 << 20}

const mostPools = 1000

// A client asks the debug page at a URL.
type client struct {
	base *url.URL
	name string // base, for people: without the password
	http http.Client
}

// newClient takes a URL, or a host and a port, whose page is at the usual path.
func newClient(text string) (*client, error) {
	full := text
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	u, err := url.Parse(full)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL such as http://localhost:6060/debug/cupool/", text)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = defaultPath
	} else if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	u.RawQuery, u.Fragment = "", ""
	return &client{base: u, name: u.Redacted()}, nil
}

// pool is one element of the page's list of pools.
type pool struct {
	ID, Name, Device string
	Private          bool
}

// pools returns the allocators and private pools of the page.
func (c *client) pools(ctx context.Context) (pools []pool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := c.get(ctx, "pools", nil, &pools); err != nil {
		return nil, err
	}
	if len(pools) == 0 {
		return nil, fmt.Errorf("%s: the program shows no allocator, or has closed it", c.name)
	}
	if len(pools) > mostPools {
		return nil, fmt.Errorf("%s: the program shows %d pools, more than %d", c.name, len(pools), mostPools)
	}
	return pools, nil
}

// ask returns the state of all of them.
func (c *client) ask(ctx context.Context) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pools, err := c.pools(ctx)
	if err != nil {
		return nil, err
	}
	s := &State{Device: pools[0].Device}
	labels, devices := holders{}, map[string]bool{}
	for _, p := range pools {
		devices[p.Device] = true
		if err := c.askPool(ctx, p, s, labels); err != nil && !(p.Private && errors.Is(err, errGone)) {
			return nil, err
		}
	}
	if more := len(devices) - 1; more > 0 {
		s.Device = fmt.Sprintf("%s and %d more", s.Device, more)
	}
	if len(pools) > 1 {
		s.Peak = 0 // pools have theirs at different times
	}
	if s.unlimited {
		s.Limit = 0
	}
	s.Time = time.Now()
	s.Labels = labels.list()
	s.sortEvents()
	return s, nil
}

// askPool adds what one pool says.
func (c *client) askPool(ctx context.Context, p pool, s *State, labels holders) error {
	of := url.Values{"pool": {p.ID}}
	var st cupool.Stats
	var blocks columns.Snapshot
	var events []snapshot.Event
	for name, to := range map[string]any{"stats": &st, "blocks": &blocks} {
		if err := c.get(ctx, name, of, to); err != nil {
			return err
		}
	}
	picture, err := blocks.Snapshot()
	if err != nil {
		return c.strange("blocks", err)
	}
	for _, l := range st.Labels {
		labels.add(l.Label, l.Bytes.Current, l.Blocks.Current)
	}
	if !p.Private { // those of its private pools are among its own
		if err := c.askOOM(ctx, of, s); err != nil {
			return err
		}
	}
	s.add(p, &st)
	s.addStreams(&picture)
	s.addLines(&picture)
	if err := c.get(ctx, "events", url.Values{"pool": {p.ID}, "limit": {fmt.Sprint(askedEvents)}}, &events); err != nil {
		return err
	}
	s.Events = append(s.Events, events[max(0, len(events)-askedEvents):]...)
	return nil
}

// askOOM keeps the last allocation that failed.
func (c *client) askOOM(ctx context.Context, of url.Values, s *State) error {
	var x *OOM
	if err := c.get(ctx, "oom", of, &x); err != nil {
		return err
	}
	if x != nil && (s.OOM == nil || x.Time.After(s.OOM.Time)) {
		s.OOM = x
	}
	return nil
}

// get reads one answer of the page.
func (c *client) get(ctx context.Context, name string, query url.Values, to any) error {
	u := c.base.JoinPath(name)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return c.unreachable(err)
	}
	defer answer.Body.Close()
	body := &io.LimitedReader{R: answer.Body, N: mostBytes[name]}
	if answer.StatusCode != http.StatusOK {
		return c.refused(answer, body)
	}
	switch err := json.NewDecoder(body).Decode(to); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.unreachable(err)
	case body.N <= 0:
		return fmt.Errorf("%s: %s: the answer has more than %s, which is the most that is read", c.name, name, bytesize.Format(mostBytes[name]))
	default:
		return c.strange(name, err)
	}
}

// strange says that an answer is none of the page's.
func (c *client) strange(name string, err error) error {
	return fmt.Errorf("%s: this is no debug page of cupool: %s: %w", c.name, name, err)
}

// errGone is of what was there a moment ago, such as a pool that was closed.
var errGone = errors.New("not found")

// refused says why a server does not answer what was asked.
func (c *client) refused(answer *http.Response, body io.Reader) error {
	var why struct{ Error string }
	if json.NewDecoder(body).Decode(&why) == nil && why.Error != "" {
		if answer.StatusCode == http.StatusNotFound {
			return fmt.Errorf("%s: %s: %w", c.name, why.Error, errGone)
		}
		return fmt.Errorf("%s: %s", c.name, why.Error)
	}
	if answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: there is no debug page of cupool: %s", c.name, answer.Status)
	}
	return fmt.Errorf("%s: %s", c.name, answer.Status)
}

// unreachable says what to do where nobody answers.
func (c *client) unreachable(err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: nothing listens there: is the program running, and does it serve the page (examples: -http)?", c.name)
	case errors.As(err, &dns):
		return fmt.Errorf("%s: there is no host %q", c.name, dns.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer within %v", c.name, askTimeout)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address of the one request
	}
	return fmt.Errorf("%s: %w", c.name, err)
}
