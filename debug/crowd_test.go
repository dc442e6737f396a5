package debug

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/gate"
	"github.com/cupool/cupool/snapshot"
)

// paper is an answer that keeps the deadline that it has.
type paper struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (p *paper) SetWriteDeadline(t time.Time) error { p.until = t; return nil }

func enter(t *testing.T, c *crowd) (*paper, func(), error) {
	t.Helper()
	w := &paper{ResponseRecorder: httptest.NewRecorder()}
	leave, err := c.enter(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(t.Context()))
	return w, leave, err
}

// Who waits shortens the answers that are under way, and those that begin meanwhile.
func TestCrowd(t *testing.T) {
	c := newCrowd(2, 1)
	begun := time.Now()
	first, leaveFirst, err := enter(t, c)
	require.NoError(t, err)
	_, leaveSecond, err := enter(t, c)
	require.NoError(t, err)
	require.False(t, first.until.Before(begun.Add(gate.Answer)))

	require.True(t, c.join())
	require.WithinRange(t, first.until, begun.Add(gate.Patience), time.Now().Add(gate.Patience))
	full, _, err := enter(t, c) // another one waits
	require.ErrorContains(t, err, "too many answers")
	require.Equal(t, []string{"1", "close"}, []string{full.Header().Get("Retry-After"), full.Header().Get("Connection")})
	leaveFirst()
	third, leaveThird, err := enter(t, c)
	require.NoError(t, err)
	require.Less(t, time.Until(third.until), gate.Answer-gate.Patience, "somebody waits")
	c.quit()

	came := make(chan func())
	go func() {
		_, leave, err := enter(t, c)
		if err != nil {
			leave = func() { t.Error(err) }
		}
		came <- leave
	}()
	leaveSecond()
	(<-came)()
	leaveThird()
	require.Empty(t, c.places)
	require.Empty(t, c.under)
	require.Zero(t, c.waiting)
}

// Under a program's own http.Server, those who ask for much and read nothing hold up the
// others for a moment, and nobody takes more answers at once than there are places.
func TestCrowdOfServer(t *testing.T) {
	p := snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: make([]snapshot.Block, 130)}}}
	stack := snapshot.Stack{{Function: strings.Repeat("f", 1<<16)}}
	for i := range p.Segments[0].Blocks {
		p.Segments[0].Blocks[i].Stack = stack
	}
	s := newFrozenServer("x", []snapshot.Snapshot{p})
	s.dear.patience = 50 * time.Millisecond
	web := httptest.NewServer(s)
	defer web.Close()
	for range maxDear {
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10)) // it reads nothing
		_, err = io.WriteString(c, "GET /snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(s.dear.places) == maxDear }, time.Minute, time.Millisecond)
	for _, path := range []string{"/stats", "/snapshot"} {
		resp, err := http.Get(web.URL + path)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err, path)
		require.NoError(t, resp.Body.Close())
	}
}

// A request is a URL of some length, and nothing else. A crowd is told to come again.
func TestRequestsTooLarge(t *testing.T) {
	s := newFrozenServer("x", []snapshot.Snapshot{{}})
	web := httptest.NewServer(s)
	defer web.Close()
	for name, r := range map[string]struct {
		method, path string
		body         io.Reader
		status       int
	}{
		"a body":               {http.MethodPost, "/trim", strings.NewReader("x"), http.StatusRequestEntityTooLarge},
		"a body with no end":   {http.MethodPost, "/trim", endless{}, http.StatusRequestEntityTooLarge},
		"a body of a GET":      {http.MethodGet, "/stats", strings.NewReader("x"), http.StatusRequestEntityTooLarge},
		"a long URL":           {http.MethodGet, "/stats?pool=" + strings.Repeat("x", maxURL), nil, http.StatusRequestURITooLong},
		"a URL that may be":    {http.MethodGet, "/stats?x=" + strings.Repeat("x", maxURL-100), nil, http.StatusOK},
		"no body and a change": {http.MethodPost, "/trim", http.NoBody, http.StatusConflict},
	} {
		req, err := http.NewRequest(r.method, web.URL+r.path, r.body)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err, name)
		require.Equal(t, r.status, resp.StatusCode, name)
		require.NoError(t, resp.Body.Close())
	}
	for range maxRequests {
		s.all.places <- struct{}{}
	}
	resp, err := http.Get(web.URL + "/stats")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.NoError(t, resp.Body.Close())
}

// endless is a body with no end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
