package meet

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/gate"
)

// A rank asks rank 0 for
//
//	GET /NAME?rank=3&size=8 with Authorization: Bearer TOKEN
//
// and has the header of the answer at once. Its body is replies: for whom rank 0 waits,
// whenever that changes, and the last one when all ranks are there, or rank 0 gives up.
type reply struct {
	Waits  string // for these ranks. "": this is the last reply
	Value  []byte
	Reason string // why there is no value
}

const (
	patience = gate.Patience    // that a connection has for what does not wait for ranks
	most     = gate.HeaderBytes // of a header, and of a reply
)

// tellEvery is how often a rank that waits is told at most.
const tellEvery = 50 * time.Millisecond

// A desk is where rank 0 notes who has come.
type desk struct {
	Config
	full    chan struct{} // closed when all are there
	over    chan struct{} // closed when reply is set
	answers sync.WaitGroup

	mu    sync.Mutex
	roll  roll
	waits string   // for whom
	from  []string // by rank: its address
	reply reply
}

// listen waits until all ranks have come, and gives them the value, or tells those
// who are there that others are not.
func (c Config) listen(ctx context.Context, value []byte) error {
	l, err := net.Listen("tcp", listenAt(c.Address))
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", c.Address, err)
	}
	d := &desk{Config: c, full: make(chan struct{}), over: make(chan struct{}), roll: newRoll(c.Size), from: make([]string, c.Size), reply: reply{Value: value}}
	d.note(0, true)
	h := gate.NewServer(d)
	h.SetKeepAlivesEnabled(false)
	go func() { _ = gate.Serve(h, l) }() // ends by Close
	defer h.Close()
	select {
	case <-d.full:
	case <-ctx.Done():
	}
	d.mu.Lock()
	if !d.roll.full() {
		err = missing(d.waits, context.Cause(ctx))
		d.reply = reply{Reason: err.Error()}
	}
	d.mu.Unlock()
	close(d.over)
	d.answers.Wait()
	return err
}

// listenAt returns where rank 0 listens: at an address of numbers, and at localhost,
// there alone. A machine may reach its own name by other addresses than the rest
// of the network does.
func listenAt(address string) string {
	host, port, _ := net.SplitHostPort(address) // was checked
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return address
	}
	return ":" + port
}

// ServeHTTP lets those in who know the token; without one, programs of this
// machine, and no page of a browser: it may not send the header, and what reaches
// this machine under another name is refused.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	known := subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(strings.TrimSpace("Bearer "+d.Token))) == 1
	if !known || d.Token == "" && (err != nil || !loopback(host)) {
		http.Error(w, "another token", http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/"+d.Name {
		http.NotFound(w, r)
		return
	}
	var rank, size int
	if _, err := fmt.Sscan(r.URL.Query().Get("rank")+" "+r.URL.Query().Get("size"), &rank, &size); err != nil {
		http.Error(w, "rank and size are numbers", http.StatusBadRequest)
		return
	}
	if refusal := d.come(rank, size, r.RemoteAddr); refusal != "" {
		http.Error(w, refusal, http.StatusConflict)
		return
	}
	defer d.answers.Done()
	gate.Of(r).Leave()
	say := http.NewResponseController(w)
	_ = say.SetReadDeadline(time.Time{}) // it waits for the others
	tell := func(what reply) {           // a rank that is gone does not come to NCCL
		_ = say.SetWriteDeadline(time.Now().Add(patience))
		_ = json.NewEncoder(w).Encode(what)
		_ = say.Flush()
	}
	for told := ""; ; {
		if waits := d.waitsFor(); waits != told {
			told = waits
			tell(reply{Waits: waits})
		}
		select {
		case <-d.over:
			tell(d.reply)
			return
		case <-r.Context().Done():
			d.leave(rank)
			return
		case <-time.After(tellEvery):
		}
	}
}

// come notes a rank, which answers.Done has to follow, or says why it cannot.
func (d *desk) come(rank, size int, from string) (refusal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case size != d.Size:
		return fmt.Sprintf("rank 0 has a group of %d", d.Size)
	case rank < 0 || rank >= size:
		return fmt.Sprintf("ranks of a group of %d are 0 to %d", size, size-1)
	case d.roll.here[rank]:
		return "it has come before, from " + d.from[rank]
	case d.reply.Reason != "":
		return "rank 0 has given up: " + d.reply.Reason
	}
	d.from[rank] = from
	d.note(rank, true)
	d.answers.Add(1)
	if d.roll.full() {
		close(d.full)
	}
	return ""
}

// leave forgets a rank that has hung up before all were there.
func (d *desk) leave(rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.roll.full() {
		d.note(rank, false)
	}
}

// note notes whether a rank is there, with the lock held.
func (d *desk) note(rank int, here bool) {
	if d.roll.note(rank, here); !d.roll.full() {
		d.waits = d.roll.absent()
	}
}

// waitsFor names the ranks that have not come.
func (d *desk) waitsFor() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waits
}

// fetch asks rank 0 until it answers.
func (c Config) fetch(ctx context.Context) ([]byte, error) {
	where := url.URL{Scheme: "http", Host: c.Address, Path: c.Name, RawQuery: fmt.Sprintf("rank=%d&size=%d", c.Rank, c.Size)}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Token)
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: most,
			DialContext: (&net.Dialer{Timeout: patience}).DialContext, ResponseHeaderTimeout: patience,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var last error // why another time may do; the end of ctx says nothing of that
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		value, again, err := c.once(&client, r)
		if again == nil {
			return value, err
		}
		if last == nil || ctx.Err() == nil {
			last = again
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for rank 0 at %s: %w: %w: %w", c.Address, dist.ErrRank, context.Cause(ctx), last)
		case <-time.After(pause):
		}
	}
}

// once asks once. again says why another time may do.
func (c Config) once(client *http.Client, r *http.Request) (value []byte, again, err error) {
	resp, err := client.Do(r)
	if err != nil {
		return nil, err, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		value, err := c.hear(r.Context(), resp.Body)
		return value, nil, err
	case http.StatusConflict:
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, most))
		return nil, nil, &cupool.ConfigError{Field: "Rank, Size", Value: fmt.Sprintf("%d of %d", c.Rank, c.Size), Reason: printable(string(reason))}
	case http.StatusUnauthorized:
		return nil, nil, &cupool.ConfigError{Field: "Token", Value: "(hidden)", Reason: "rank 0 at " + c.Address + " has another one"}
	case http.StatusNotFound:
		return nil, fmt.Errorf("it makes no communicator %q", c.Name), nil
	}
	return nil, fmt.Errorf("it answers with status %d", resp.StatusCode), nil
}

// hear reads what rank 0 says to a rank that has come, up to the last reply.
func (c Config) hear(ctx context.Context, body io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: body}
	replies, waits := json.NewDecoder(limited), "rank 0 at "+c.Address
	for {
		var said reply
		limited.N = most
		err := replies.Decode(&said)
		switch {
		case ctx.Err() != nil:
			return nil, missing(printable(waits), context.Cause(ctx))
		case err != nil:
			return nil, fmt.Errorf("%w: rank 0 at %s is gone: %w", dist.ErrRank, c.Address, err)
		case said.Waits != "":
			waits = said.Waits
		case len(said.Value) == 0:
			return nil, fmt.Errorf("%w: rank 0 has given up: %s", dist.ErrRank, printable(said.Reason))
		default:
			return said.Value, nil
		}
	}
}

// printable cuts what a stranger may have written.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.TrimSpace(s[:min(len(s), 500)]))
}
