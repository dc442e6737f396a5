package debug

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/debugtest"
)

// Names that a stranger can register are refused, on every path and for every method.
func TestHosts(t *testing.T) {
	was := slices.Clone(allowed.names)
	t.Cleanup(func() { allowed.names = was })
	AllowHosts("GPU7.lab.example", "proxy.example")
	c := debugtest.NewPool(t, cupool.Config{})
	h := Handler(c)
	frozen := SnapshotHandler("saved", c.Snapshot())
	for host, ok := range map[string]bool{
		"": true, "localhost": true, "localhost:6060": true, "x.localhost:6060": true, "LOCALHOST.": true,
		"127.0.0.1": true, "127.0.0.1:6060": true, "192.168.1.7:80": true, "[::1]:6060": true, "[::1]": true, "[fe80::1%25eth0]:80": true,
		"machine": true, "machine:6060": true,
		"gpu7.lab.example": true, "Gpu7.Lab.Example:6060": true, "proxy.example.": true,
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
	require.JSONEq(t, `{"error": "this page is not served under the name \"evil.example\": take the computer's address, or have the program call debug.AllowHosts(\"evil.example\")"}`, w.Body.String())
}

// The computer's own name needs no leave.
func TestOwnName(t *testing.T) {
	for _, name := range ownName() {
		r := httptest.NewRequest("GET", "/pools", nil)
		r.Host = name + ":6060"
		require.NoError(t, checkHost(r))
	}
}
