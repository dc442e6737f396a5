package debug

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/debugtest"
)

// Names that a stranger can register are refused, on every path and for every method.
func TestHosts(t *testing.T) {
	was := slices.Clone(allowed.names)
	t.Cleanup(func() { allowed.names = was })
	AllowHosts("GPU7.lab.example", "proxy.example", "absolute.example.")
	c := debugtest.NewPool(t, cupool.Config{})
	h := Handler(c)
	frozen := SnapshotHandler("saved", c.Snapshot())
	for host, ok := range map[string]bool{
		"": true, "localhost": true, "localhost:6060": true, "x.localhost:6060": true, "LOCALHOST.": true,
		"127.0.0.1": true, "127.0.0.1:6060": true, "192.168.1.7:80": true, "[::1]:6060": true, "[::1]": true, "[fe80::1%25eth0]:80": true,
		"machine": true, "machine:6060": true,
		"gpu7.lab.example": true, "Gpu7.Lab.Example:6060": true, "proxy.example.": true, "absolute.example": true, "absolute.example.:80": true,
		"evil.example": false, "evil.example:6060": false, "127.0.0.1.evil.example:6060": false,
		"localhost.evil.example": false, "a.gpu7.lab.example": false,
	} {
		for _, target := range []string{"/", "/stats", "/chart.js", "/nothing"} {
			r := httptest.NewRequest("GET", target, nil)
			r.Host = host
			for _, h := range []*server{h.(*server), frozen.(*server)} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				assert.Equal(t, !ok, w.Code == 403, "%q %s: %s", host, target, w.Body)
			}
		}
	}
	r := httptest.NewRequest("POST", "/empty", nil)
	r.Host = "evil.example"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 403, w.Code)
	require.JSONEq(t, `{"error": "this page is not served under the name \"evil.example\": take the computer's address, or name it in CUPOOL_DEBUG_HOSTS or by debug.AllowHosts(\"evil.example\")"}`, w.Body.String())
}

// The computer's own name needs no leave.
func TestOwnName(t *testing.T) {
	for _, name := range ownName() {
		r := httptest.NewRequest("GET", "/pools", nil)
		r.Host = name + ":6060"
		require.NoError(t, checkHost(r))
	}
}

// Who starts a program names its hosts, with commas.
func TestNamesFromOutside(t *testing.T) {
	require.Equal(t, []string{"a.example", "b.example", "c"}, namesIn(" A.example,b.example , c,"))
	require.Empty(t, namesIn(""))
	t.Setenv("CUPOOL_DEBUG_HOSTS", "GPU7.lab.example,other.example") // is read when a program starts
	if !testkit.InChild(t) {
		return
	}
	require.True(t, allowed.have("gpu7.lab.example"))
	require.True(t, allowed.have("other.example"))
}

// A program that listens to other computers is read under any name, and changed under its
// own alone. What comes over the loopback is read under its own, too.
func TestOpenListener(t *testing.T) {
	h := Handler(debugtest.NewPool(t, cupool.Config{}))
	for _, c := range []struct {
		method, path string
		to           net.Addr
		ok           bool
	}{
		{"GET", "/stats", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6060}, true},
		{"HEAD", "/stats", &net.TCPAddr{IP: net.ParseIP("fd00::7"), Port: 6060}, true},
		{"POST", "/trim", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6060}, false},
		{"GET", "/stats", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6060}, false},
		{"GET", "/stats", &net.TCPAddr{IP: net.IPv6loopback, Port: 6060}, false},
		{"GET", "/stats", &net.UnixAddr{Name: "socket", Net: "unix"}, false},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = "gpu.cluster.example"
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.to))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.ok, w.Code == 200, "%v: %s", c, w.Body)
	}
}
