package gate

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patient is longer than anything here takes that does not hang.
const patient = time.Minute

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func dial(t *testing.T, l net.Listener, says string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, says) // it may have been ended
	return c
}

// hears returns what comes until the other side ends the connection.
func hears(t *testing.T, c net.Conn) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patient)))
	said, err := io.ReadAll(c)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	return string(said)
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// Run serves until its context is done, and gives no request more than it may have.
func TestRun(t *testing.T) {
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, l, http.HandlerFunc(hello)) }()
	held := dial(t, l, "")
	resp, err := http.Get("http://" + l.Addr().String())
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(body))
	require.Contains(t, hears(t, dial(t, l, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", HeaderBytes+5000))), "431")
	require.Contains(t, hears(t, dial(t, l, "\x16\x03\x01\r\n\r\n")), "400")
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, hears(t, held))
	require.Error(t, Run(t.Context(), l, http.HandlerFunc(hello)), "the listener is closed")
}

// A connection that sends nothing, or a byte now and then, ends in time, and so does one
// whose body does not come.
func TestSlow(t *testing.T) {
	l := listen(t)
	s := NewServer(http.HandlerFunc(hello))
	require.Equal(t, Patience, s.ReadTimeout)
	s.ReadTimeout = 100 * time.Millisecond
	s.IdleTimeout = 100 * time.Millisecond
	go func() { _ = Serve(s, l) }()
	defer s.Close()
	const whole = "GET / HTTP/1.1\r\nHost: a\r\n"
	for _, says := range []string{"", "GET", whole, whole + "\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx"} {
		c := dial(t, l, says)
		stop := make(chan struct{})
		go func() {
			for _, err := io.WriteString(c, ""); err == nil; _, err = io.WriteString(c, "X: y\r\n") {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if !strings.HasPrefix(says, whole) || strings.HasSuffix(says, "\r\n\r\n") {
					return
				}
			}
		}()
		hears(t, c)
		close(stop)
	}
}

// Requests are answered beside more connections than there is room for.
func TestCrowd(t *testing.T) {
	l := listen(t)
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Of(r).Leave(); hello(w, r) }))
	g := &listener{Listener: l, gate: Gate{Room: 4}, closed: make(chan struct{})}
	go func() { _ = s.Serve(g) }()
	defer s.Close()
	first := dial(t, l, "")
	for _, says := range []string{"", "GET", "GET / HTTP/1.1\r\nHost: a\r\n"} {
		for range 6 {
			dial(t, l, says)
		}
		c := dial(t, l, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		require.Contains(t, hears(t, c), "hello")
	}
	require.Empty(t, hears(t, first))
}
