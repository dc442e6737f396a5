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

// A server is rank 0's desk at an address. A rank asks for
//
//	GET /NAME?rank=3&size=8&from=... with Authorization: Bearer TOKEN
//
// and has the header of the answer at once, and its body when all are there.
type server struct {
	*desk
	full    chan struct{} // closed when all are there
	over    chan struct{} // closed when reply is set, and nobody is let in any more
	reply   reply
	answers sync.WaitGroup
}

// listen waits until all ranks have come, and gives them the value, or tells those
// who are there that others are not.
func (c Config) listen(ctx context.Context, value []byte) error {
	l, err := net.Listen("tcp", listenAt(c.Address))
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", c.Address, err)
	}
	s := &server{desk: newDesk(c), full: make(chan struct{}), over: make(chan struct{}), reply: reply{Value: value}}
	h := &http.Server{Handler: s, ReadHeaderTimeout: patience, MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = h.Serve(l) }() // ends by Close
	defer h.Close()
	select {
	case <-s.full:
	case <-ctx.Done():
	}
	s.mu.Lock()
	if s.here < s.Size {
		err = s.missing(context.Cause(ctx))
		s.reply = reply{Reason: err.Error()}
	}
	close(s.over)
	s.mu.Unlock()
	s.answers.Wait()
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
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	known := subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(strings.TrimSpace("Bearer "+s.Token))) == 1
	if !known || s.Token == "" && (err != nil || !loopback(host)) {
		http.Error(w, "another token", http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/"+s.Name {
		http.NotFound(w, r)
		return
	}
	a := ask{From: r.URL.Query().Get("from")}
	_, err = fmt.Sscan(r.URL.Query().Get("rank")+" "+r.URL.Query().Get("size"), &a.Rank, &a.Size)
	if err != nil {
		http.Error(w, "rank and size are numbers", http.StatusBadRequest)
		return
	}
	s.answer(w, r, a)
}

// answer answers a rank. One that hangs up has not come.
func (s *server) answer(w http.ResponseWriter, r *http.Request, a ask) {
	say := http.NewResponseController(w)
	answer, ok := s.enter(a)
	if ok {
		defer s.answers.Done()
		_ = say.Flush() // errors show below
		select {
		case <-s.over:
		case <-r.Context().Done():
			if s.left(a.Rank) {
				return
			}
			<-s.over
		}
		answer = s.reply
	}
	_ = say.SetWriteDeadline(time.Now().Add(patience))
	_ = json.NewEncoder(w).Encode(answer) // a rank that is gone does not come to NCCL
	_ = say.Flush()
}

// enter notes a rank, which answers.Done has to follow, or returns why it cannot.
func (s *server) enter(a ask) (refusal reply, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return reply{Reason: "all is over"}, false
	default:
	}
	if refusal, ok = s.come(a); !ok {
		return refusal, false
	}
	s.answers.Add(1)
	if s.here == s.Size {
		close(s.full)
	}
	return reply{}, true
}

// left reports whether a rank could leave: not when all are there.
func (s *server) left(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.here == s.Size {
		return false
	}
	s.leave(rank)
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
			return nil, fmt.Errorf("waiting for rank 0 at %s: %w: %w: %w", c.Address, dist.ErrRank, context.Cause(ctx), again)
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
