package meet

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// patience is how long a connection may take for what does not wait for ranks.
const patience = 10 * time.Second

// A server listens at an address for all communicators that this process, as their
// rank 0, makes there at the same time. A rank asks for
//
//	GET /NAME?rank=3&size=8&from=... with Authorization: Bearer TOKEN
//
// and has the header of the answer at once, and its body when all are there.
type server struct {
	http.Server
	token string
	desks map[string]*waiting // by name
}

var servers = struct {
	sync.Mutex
	at map[string]*server // by address
}{at: map[string]*server{}}

// A waiting is a desk with those who wait there.
type waiting struct {
	*desk
	full    chan struct{} // closed when all are there
	over    chan struct{} // closed when reply is set, and nobody is let in any more
	reply   reply
	answers sync.WaitGroup
}

// listen waits until all ranks have come, and gives them the value, or tells those
// who are there that others are not.
func (c Config) listen(ctx context.Context, value []byte) error {
	w := &waiting{desk: newDesk(c), full: make(chan struct{}), over: make(chan struct{}), reply: reply{Value: value}}
	s, err := open(w)
	if err != nil {
		return err
	}
	defer s.forget(w)
	select {
	case <-w.full:
	case <-ctx.Done():
	}
	w.mu.Lock()
	if w.here < w.Size {
		err = w.missing(context.Cause(ctx))
		w.reply = reply{Reason: strings.ReplaceAll(err.Error(), "\n", ", ")}
	}
	close(w.over)
	w.mu.Unlock()
	w.answers.Wait()
	return err
}

// open makes a desk known at its address.
func open(w *waiting) (*server, error) {
	servers.Lock()
	defer servers.Unlock()
	s := servers.at[w.Address]
	if s == nil {
		l, err := net.Listen("tcp", listenAt(w.Address))
		if err != nil {
			return nil, fmt.Errorf("cannot listen at %s: %w", w.Address, err)
		}
		s = &server{token: w.Token, desks: map[string]*waiting{}}
		s.Addr, s.Handler, s.ErrorLog = w.Address, s, log.New(io.Discard, "", 0)
		s.ReadHeaderTimeout, s.MaxHeaderBytes = patience, 8<<10
		servers.at[w.Address] = s
		go func() { _ = s.Serve(l) }() // ends by Close
	}
	switch {
	case s.token != w.Token:
		return nil, &cupool.ConfigError{Field: "Token", Value: "(hidden)", Reason: "another communicator is being made at " + w.Address + ", with another one"}
	case s.desks[w.Name] != nil:
		return nil, &cupool.ConfigError{Field: "Name", Value: strconv.Quote(w.Name), Reason: "another communicator of this name is being made at " + w.Address}
	}
	s.desks[w.Name] = w
	return s, nil
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

// forget takes a desk away, and the server with the last one.
func (s *server) forget(w *waiting) {
	servers.Lock()
	defer servers.Unlock()
	if delete(s.desks, w.Name); len(s.desks) == 0 {
		delete(servers.at, s.Addr)
		_ = s.Close() // all ranks are answered
	}
}

// ServeHTTP lets those in who know the token; without one, programs of this
// machine, and no page of a browser: it may not send the header, and what reaches
// this machine under another name is refused.
func (s *server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	known := subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(strings.TrimSpace("Bearer "+s.token))) == 1
	if !known || s.token == "" && (err != nil || !loopback(host)) {
		http.Error(rw, "another token", http.StatusUnauthorized)
		return
	}
	servers.Lock()
	w := s.desks[strings.TrimPrefix(r.URL.Path, "/")]
	servers.Unlock()
	if w == nil {
		http.NotFound(rw, r)
		return
	}
	q := r.URL.Query()
	a := ask{From: q.Get("from")}
	var errs [2]error
	a.Rank, errs[0] = strconv.Atoi(q.Get("rank"))
	a.Size, errs[1] = strconv.Atoi(q.Get("size"))
	if errors.Join(errs[:]...) != nil {
		http.Error(rw, "rank and size are numbers", http.StatusBadRequest)
		return
	}
	w.serve(rw, r, a)
}

// serve answers a rank. One that hangs up has not come.
func (w *waiting) serve(rw http.ResponseWriter, r *http.Request, a ask) {
	say := http.NewResponseController(rw)
	answer, ok := w.enter(a)
	if ok {
		defer w.answers.Done()
		_ = say.SetWriteDeadline(time.Now().Add(patience))
		_ = say.Flush() // errors show when it is written to
		select {
		case <-w.over:
		case <-r.Context().Done():
			if w.left(a.Rank) {
				return
			}
			<-w.over
		}
		answer = w.reply
	}
	_ = say.SetWriteDeadline(time.Now().Add(patience))
	_ = json.NewEncoder(rw).Encode(answer)
	_ = say.Flush()
}

// enter notes a rank, which answers.Done has to follow, or returns why it cannot.
func (w *waiting) enter(a ask) (refusal reply, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.over:
		return reply{Reason: "all is over"}, false
	default:
	}
	if refusal, ok = w.come(a); !ok {
		return refusal, false
	}
	w.answers.Add(1)
	if w.here == w.Size {
		close(w.full)
	}
	return reply{}, true
}

// left reports whether a rank could leave: not when all are there.
func (w *waiting) left(rank int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.here == w.Size {
		return false
	}
	w.leave(rank)
	return true
}

// fetch asks rank 0 until it answers.
func (c Config) fetch(ctx context.Context) ([]byte, error) {
	a := c.ask()
	q := url.Values{"rank": {strconv.Itoa(a.Rank)}, "size": {strconv.Itoa(a.Size)}, "from": {a.From}}
	where := url.URL{Scheme: "http", Host: c.Address, Path: c.Name, RawQuery: q.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Token)
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 8 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		value, again, err := c.once(&client, r)
		if again == nil {
			return value, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for rank 0 at %s: %w: %w", c.Address, errors.Join(dist.ErrRank, context.Cause(ctx)), again)
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
		var answer reply
		if err := json.NewDecoder(io.LimitReader(resp.Body, 8<<10)).Decode(&answer); err != nil {
			if gone := r.Context().Err(); gone != nil {
				return nil, errors.New("it waits for other ranks"), nil
			}
			return nil, nil, fmt.Errorf("%w: rank 0 at %s is gone: %w", dist.ErrRank, c.Address, err)
		}
		value, err = c.open(answer)
		return value, nil, err
	case http.StatusUnauthorized:
		return nil, nil, &cupool.ConfigError{Field: "Token", Value: "(hidden)", Reason: "rank 0 at " + c.Address + " has another one"}
	case http.StatusNotFound:
		return nil, fmt.Errorf("it makes no communicator %q", c.Name), nil
	}
	return nil, fmt.Errorf("it answers with status %d", resp.StatusCode), nil
}
