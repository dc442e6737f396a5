package dist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestJoinAndStore(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		groups := joinAll(t, n, func(c *Config) { c.LocalRank, c.Token = c.Rank%2, "secret" })
		noErrors(t, parallel(n, func(rank int) error {
			g := groups[rank]
			if g.Rank() != rank || g.Size() != n || g.LocalRank() != rank%2 || g.Err() != nil {
				return errors.New("it is another rank")
			}
			if err := g.Set(fmt.Sprint("k", rank), []byte{byte(rank)}); err != nil {
				return err
			}
			for peer := range n {
				v, err := g.Get(t.Context(), fmt.Sprint("k", peer))
				if err != nil {
					return err
				}
				if !bytes.Equal(v, []byte{byte(peer)}) {
					return fmt.Errorf("%v for rank %d", v, peer)
				}
			}
			return nil
		}))
		g := groups[n-1]
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.ErrNoProgress)
		_, err := g.Get(ctx, "never set")
		require.ErrorIs(t, err, io.ErrNoProgress)
		_, err = g.Get(ctx, string(make([]byte, maxKey+1)))
		require.ErrorIs(t, err, cupool.ErrInvalidSize)
		require.ErrorIs(t, g.Set("k", make([]byte, maxValue+1)), cupool.ErrInvalidSize)
		require.NoError(t, g.Set("k", make([]byte, maxValue)))
		v, err := g.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, v, maxValue)
		require.NoError(t, g.Close())
		require.ErrorIs(t, g.Close(), cupool.ErrClosed)
		require.ErrorIs(t, g.Set("k", nil), cupool.ErrClosed)
	}
}

// The end of a group is no failure, in whichever order the ranks close it.
func TestGroupsCloseInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		groups := joinAll(t, 3, nil)
		for _, rank := range order {
			require.NoError(t, groups[rank].Err())
			require.NoError(t, groups[rank].Close())
		}
		for _, g := range groups {
			require.NoError(t, g.Err())
		}
	}
	groups := joinAll(t, 2, nil)
	waiting := make(chan error, 1)
	go func() {
		_, err := groups[1].Get(t.Context(), "never set")
		waiting <- err
	}()
	require.NoError(t, groups[0].Close())
	require.ErrorIs(t, <-waiting, ErrRank)
	require.ErrorIs(t, groups[1].Set("k", nil), ErrRank)
	require.NoError(t, groups[1].Err())
}

// begin starts rank 0 of a group and returns its address, its log and its end.
func begin(t *testing.T, cfg Config) (addr string, log *bytes.Buffer, end func() (*Group, error)) {
	log = new(bytes.Buffer)
	cfg.Rendezvous, cfg.Logger = freeAddress(t), slog.New(slog.NewTextHandler(log, nil))
	type result struct {
		g   *Group
		err error
	}
	done := make(chan result, 1)
	go func() {
		g, err := Join(t.Context(), cfg)
		done <- result{g, err}
	}()
	return cfg.Rendezvous, log, func() (*Group, error) {
		r := <-done
		return r.g, r.err
	}
}

func TestJoinRefuses(t *testing.T) {
	addr, log, end := begin(t, Config{Size: 3, Token: "a", Timeout: patient})
	join := func(cfg Config) (*Group, error) {
		cfg.Rendezvous, cfg.Timeout = addr, patient
		return Join(t.Context(), cfg)
	}
	refused := func(cfg Config, field string) {
		_, err := join(cfg)
		var bad *cupool.ConfigError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
		require.ErrorContains(t, err, addr)
	}
	refused(Config{Rank: 1, Size: 4, Token: "a"}, "Size")
	refused(Config{Rank: 1, Size: 3, Token: "b"}, "Token")
	refused(Config{Rank: 1, Size: 3}, "Token")

	second := make(chan error, 1)
	first, stop := context.WithCancel(t.Context())
	go func() {
		for {
			_, err := Join(first, Config{Rank: 1, Size: 3, Token: "a", Rendezvous: addr, Timeout: patient})
			if !errors.Is(err, cupool.ErrInvalidConfig) { // a try below was faster
				second <- err
				return
			}
		}
	}()
	require.Eventually(t, func() bool { // once the first one is there
		_, err := Join(t.Context(), Config{Rank: 1, Size: 3, Token: "a", Rendezvous: addr, Timeout: 100 * time.Millisecond})
		return errors.Is(err, cupool.ErrInvalidConfig)
	}, patient, time.Millisecond)
	refused(Config{Rank: 1, Size: 3, Token: "a"}, "Rank")
	stop()
	require.ErrorIs(t, <-second, context.Canceled)

	// Its place is free again.
	var groups [3]*Group
	noErrors(t, parallel(3, func(rank int) (err error) {
		if rank == 0 {
			groups[0], err = end()
			return err
		}
		for range 1000 { // until rank 0 has seen the other one leave
			if groups[rank], err = join(Config{Rank: rank, Size: 3, Token: "a"}); !errors.Is(err, cupool.ErrInvalidConfig) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return err
	}))
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
	require.Contains(t, log.String(), "refused")
}

func TestJoinNamesThoseWhoAreMissing(t *testing.T) {
	addr, _, end := begin(t, Config{Size: 4, Timeout: time.Second})
	errs := parallel(2, func(i int) error {
		if i == 0 {
			_, err := end()
			return err
		}
		_, err := Join(t.Context(), Config{Rank: 2, Size: 4, Rendezvous: addr, Timeout: patient})
		return err
	})
	for _, err := range errs {
		require.ErrorIs(t, err, ErrRank)
		require.ErrorContains(t, err, "ranks 1, 3 of 4 have not joined")
	}
	require.ErrorIs(t, errs[0], context.DeadlineExceeded)

	_, err := Join(t.Context(), Config{Rank: 1, Size: 2, Rendezvous: freeAddress(t), Timeout: 50 * time.Millisecond})
	require.ErrorIs(t, err, ErrRank)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Join(t.Context(), Config{Size: 2, Rendezvous: l.Addr().String()})
	require.ErrorContains(t, err, "cannot listen")
}

// Strangers at the port neither join nor disturb those who do.
func TestStrangers(t *testing.T) {
	addr, _, end := begin(t, Config{Size: 2, Timeout: patient})
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", magic, magic + string(make([]byte, 4096)), string(make([]byte, 1<<16))} {
		var conn net.Conn
		require.Eventually(t, func() (ok bool) {
			var err error
			conn, err = net.Dial("tcp", addr)
			return err == nil
		}, patient, time.Millisecond)
		_, _ = conn.Write([]byte(garbage)) // rank 0 may have hung up
		if garbage != "" {
			defer conn.Close()
			continue
		}
		require.NoError(t, conn.Close())
	}
	g1, err := Join(t.Context(), Config{Rank: 1, Size: 2, Rendezvous: addr, Timeout: patient})
	require.NoError(t, err)
	g0, err := end()
	require.NoError(t, err)
	require.NoError(t, g1.Close())
	require.NoError(t, g0.Close())
}

// A rank that finds another program at the rendezvous says so.
func TestAnotherProgramAnswers(t *testing.T) {
	for _, says := range []string{"220 mail.example.org ESMTP, welcome to this machine\r\n", "HTTP/1.1 400 Bad Request\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(says))
				_ = conn.Close()
			}
		}()
		_, err = Join(t.Context(), Config{Rank: 1, Size: 2, Rendezvous: l.Addr().String(), Timeout: patient})
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, "another port")
		require.NoError(t, l.Close())
	}
}

func TestVersionsAreCompared(t *testing.T) {
	b := append([]byte(magic), 0, version+1)
	_, _, err := readHello(append(b, make([]byte, helloSize-len(b))...), nonce{}, func(uint16) []byte { return nil })
	var no *refusal
	require.ErrorAs(t, err, &no)
	require.EqualValues(t, wrongVersion, no.code)
	g := &Group{}
	require.ErrorIs(t, g.refusedBy("a:1", no), cupool.ErrNotSupported)
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6:", err)
	}
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	groups := joinAll(t, 3, func(c *Config) { c.Rendezvous = addr })
	for _, c := range connectAll(t, groups, makePools(t, 3, newPool)) {
		require.NoError(t, c.Close())
	}
}

func TestHostNamesTheWay(t *testing.T) {
	groups := joinAll(t, 3, func(c *Config) { c.Host = "localhost" })
	for _, c := range connectAll(t, groups, makePools(t, 3, newPool)) {
		require.NoError(t, c.Close())
	}
}

// settled fails the test unless the goroutines go back to so many.
func settled(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(patient); runtime.NumGoroutine() > n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, not %d:\n%s", runtime.NumGoroutine(), n, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestNoGoroutinesAreLeft(t *testing.T) {
	pools := makePools(t, 3, newPool)
	before := runtime.NumGoroutine()
	for _, abort := range []bool{false, true} {
		groups := joinAll(t, 3, nil)
		comms := connectAll(t, groups, pools)
		noErrors(t, parallel(3, func(rank int) error { return sum(comms[rank], pools[rank], 1000) }))
		if abort {
			require.NoError(t, comms[1].Abort())
		}
		for i := range comms {
			_ = comms[i].Close()
			_ = groups[i].Close()
		}
		local, err := Local(pools...)
		require.NoError(t, err)
		noErrors(t, parallel(3, func(rank int) error { return sum(local[rank], pools[rank], 1000) }))
		for i := range local {
			require.NoError(t, local[i].Close())
		}
		settled(t, before)
	}
}

// sum adds up count ones of each rank, and checks the result.
func sum(c Comm, pool *cupool.Pool, count int) error {
	ones := make([]int32, count)
	for i := range ones {
		ones[i] = 1
	}
	b, err := cupool.BufferFrom(pool, ones, nil)
	if err != nil {
		return err
	}
	defer b.Free()
	m, err := Of(b)
	if err != nil {
		return err
	}
	if err := c.AllReduce(m, m, Sum, nil); err != nil {
		return err
	}
	if err := b.CopyTo(ones); err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	for i, v := range ones {
		if int(v) != c.Size() {
			return fmt.Errorf("element %d is %d", i, v)
		}
	}
	return nil
}

func FuzzReadFrame(f *testing.F) {
	f.Add(frame{kind: frameSet, id: 1, key: "k", value: []byte("v")}.append(nil))
	f.Add(frame{kind: frameBye}.append(nil))
	f.Add([]byte{2, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err == nil {
			require.True(t, bytes.HasPrefix(b, got.append(nil)))
		}
	})
}

func FuzzGreet(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(append([]byte(magic), make([]byte, helloSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		_, _, err := greet(rw, func(uint16) []byte { return []byte("key") })
		require.Error(t, err) // the number that is signed is another one each time
	})
}

func FuzzIntroduce(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(append([]byte(magic), make([]byte, 2*greetingSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		require.Error(t, introduce(rw, []byte("key"), hello{purpose: forStore, size: 2, rank: 1}))
	})
}
