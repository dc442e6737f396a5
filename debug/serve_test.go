package debug

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/debugtest"
)

// A page of Serve is read by many at once, beside what a stranger holds, until the context ends.
func TestServe(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{})
	b, err := c.Alloc(1000, nil)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, Handler(c)) }()
	stranger, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 20 {
		for _, path := range []string{"snapshot", "blocks", "heap", "snapshot.pickle", "stats"} {
			wg.Go(func() {
				resp, err := http.Get("http://" + l.Addr().String() + "/" + path)
				if err == nil {
					err = resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %v %v", path, resp, err)
				}
			})
		}
	}
	wg.Wait()
	require.NoError(t, stranger.Close())
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, c.Free(b))
}

// No page has an allocator that is none, or one that is closed.
func TestPageOfNothing(t *testing.T) {
	closed := debugtest.NewPool(t, cupool.Config{})
	require.NoError(t, closed.Close())
	for _, c := range []*cupool.Pool{nil, new(cupool.Pool), closed} {
		status, _ := ask(t, Handler(c), "GET", "/stats")
		require.Equal(t, http.StatusNotFound, status)
		Publish("nothing", c)()
	}
}
