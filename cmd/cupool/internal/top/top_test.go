package top

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
)

// newPage serves the page of a pool and a private one.
func newPage(t *testing.T) (url string, pool, private *cupool.Pool) {
	pool, err := cupool.New(cupool.Config{Limit: 64 << 20, Backing: cupool.BackingSegments, History: &cupool.History{SampleBytes: 1}})
	require.NoError(t, err)
	private, err = pool.NewPool(cupool.PoolConfig{Name: "batches"})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/debug/cupool/", debug.Handler(pool))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, pool, private
}

// load allocates, for stacks that name it.
func load(t *testing.T, a cupool.Allocator, size int64) {
	t.Helper()
	_, err := a.Alloc(size, nil)
	require.NoError(t, err)
}

// What the page says is printed once, as text.
func TestOnce(t *testing.T) {
	url, pool, private := newPage(t)
	load(t, pool, 12<<20)
	load(t, private.WithLabel("inputs"), 3<<20)
	_, err := pool.WithLabel("weights").Alloc(1<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	var out strings.Builder
	require.NoError(t, Once(t.Context(), &out, url, "", true))
	var state State
	require.NoError(t, json.Unmarshal([]byte(out.String()), &state))
	require.Equal(t, Memory{Live: 15 << 20, Cached: 17 << 20, Reserved: 32 << 20, Blocks: 2}, state.Memory)
	require.EqualValues(t, 1<<30, state.OOM.Asked)
	out.Reset()
	require.NoError(t, Once(t.Context(), &out, url, "", false))
	for _, want := range []string{
		`^cupool top +http://127\.0\.0\.1:\d+/debug/cupool/ +host `,
		`\nreserved +32 MiB +█+·+ +of 64 MiB\n`,
		`\n  live +15 MiB +█+`,
		`\n  cached +17 MiB +█+`,
		`\nall +allocs 2 +frees 0 +mapped 0 +grown 2 +hits 0\.00 % +driver 2 +retries 0 +oom 1\n`,
		`\nallocator +12 MiB +12 MiB +0 B +0 B +1\n  stream 0 +12 MiB +12 MiB +0 B +0 B +1\nallocator/batches +20 MiB +3 MiB +0 B +17 MiB +1\n  stream 0 +20 MiB`,
		`\nout of memory at [\d:]+: 1 GiB\n  cause: limit\n  held: 1 block, 12 MiB, allocated at top\.load \(top_test\.go:\d+\), .*\n  held: 1 block, 3 MiB, in pool "batches", for inputs, .*\n`,
		`\n +12 MiB +1 +80\.0 %  top\.load \(top_test\.go:\d+\) < top\.TestOnce \(top_test\.go:\d+\)\n`,
		`\n +3 MiB +1 +20\.0 %  batches: inputs: top\.load \(top_test\.go:\d+\) < `,
		`EVENTS, THE NEWEST FIRST\n[\d:.]+  oom +1 GiB  stream 0 .*(\n[\d:.]+  .*)*\n[\d:.]+  segment_alloc +20 MiB  stream 0  batches`,
	} {
		require.Regexp(t, want, out.String())
	}
}

// Of several allocators the limits add up where each has one, and the last failure of all is shown.
func TestSeveral(t *testing.T) {
	for _, c := range []struct {
		limits []int64
		want   int64
	}{
		{[]int64{64 << 20, 32 << 20}, 96 << 20}, {[]int64{0, 32 << 20}, 0}, {[]int64{64 << 20, 0}, 0}, {[]int64{0, 0}, 0},
	} {
		var pools []*cupool.Pool
		for _, limit := range c.limits {
			p, err := cupool.New(cupool.Config{Limit: limit, Backing: cupool.BackingSegments})
			require.NoError(t, err)
			defer p.Close()
			pools = append(pools, p)
		}
		for failing, asked := range map[int]int64{0: 1 << 50, 1: 2 << 50} {
			_, err := pools[failing].Alloc(asked, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			server := httptest.NewServer(debug.Handler(pools...))
			var out strings.Builder
			require.NoError(t, Once(t.Context(), &out, server.URL+"//", "", true))
			server.Close()
			var state State
			require.NoError(t, json.Unmarshal([]byte(out.String()), &state))
			require.Equal(t, c.want, state.Limit, c.limits)
			require.Equal(t, asked, state.OOM.Asked, c.limits)
		}
	}
}

// The allocators of a program may be of several devices.
func TestDevices(t *testing.T) {
	for _, c := range []struct {
		devices []string
		want    string
	}{{[]string{"host:1GiB"}, "host (1 GiB)"}, {[]string{"host:1GiB", "host:1GiB"}, "host (1 GiB)"}, {[]string{"host:1GiB", "host:2GiB", "host:3GiB"}, "host (1 GiB) and 2 more"}} {
		var pools []*cupool.Pool
		for _, name := range c.devices {
			d, err := cupool.Open(name)
			require.NoError(t, err)
			p, err := cupool.New(cupool.Config{Driver: d})
			require.NoError(t, err)
			defer p.Close()
			pools = append(pools, p)
		}
		server := httptest.NewServer(debug.Handler(pools...))
		defer server.Close()
		var out strings.Builder
		require.NoError(t, Once(t.Context(), &out, server.URL+"//", "", false))
		require.Contains(t, out.String(), "  "+c.want+"  ")
	}
}

// A private pool that is closed while the page is read is left out.
func TestPassingPool(t *testing.T) {
	for _, last := range []string{"pools", "stats", "blocks"} {
		_, pool, private := newPage(t)
		load(t, pool, 12<<20)
		load(t, private, 3<<20)
		page := debug.Handler(pool)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			page.ServeHTTP(w, r)
			if strings.HasSuffix(r.URL.Path, last) && (last == "pools" || strings.HasSuffix(r.URL.Query().Get("pool"), "/batches")) {
				_ = private.Close() // it leaks
			}
		}))
		var out strings.Builder
		require.NoError(t, Once(t.Context(), &out, server.URL, "", true), last)
		server.Close()
		var state State
		require.NoError(t, json.Unmarshal([]byte(out.String()), &state))
		require.GreaterOrEqual(t, state.Live, int64(12<<20))
	}
}

// A wrong URL is an error that says what is wrong.
func TestWrongURL(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer html.Close()
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }))
	defer none.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write([]byte(`{"error":"the pool is closed"}`))
	}))
	defer refusing.Close()
	server, _, _ := newPage(t)
	for url, want := range map[string]string{
		"ftp://here":               `"ftp://here" is no URL such as http://localhost:6060/debug/cupool/`,
		"http://":                  "is no URL",
		gone.URL:                   "/debug/cupool/: nothing listens there: is the program running",
		server + "/a/b":            "/a/b/: there is no debug page of cupool: 404 Not Found",
		html.URL:                   "this is no debug page of cupool",
		none.URL:                   "the program shows no allocator",
		refusing.URL:               "/debug/cupool/: the pool is closed",
		"http://no-such.invalid:1": `there is no host "no-such.invalid"`,
	} {
		require.ErrorContains(t, Once(t.Context(), &strings.Builder{}, url, "", false), want, url)
	}
}

// The password of a page behind a proxy is on no terminal and in no file.
func TestPassword(t *testing.T) {
	server, _, _ := newPage(t)
	var out strings.Builder
	require.NoError(t, Once(t.Context(), &out, strings.Replace(server, "://", "://me:secret@", 1), "", false))
	require.Contains(t, out.String(), "cupool top  http://me:xxxxx@127.0.0.1")
	require.NotContains(t, out.String(), "secret")
	err := Once(t.Context(), &out, "http://me:secret@no-such.invalid:1", "", false)
	require.ErrorContains(t, err, "http://me:xxxxx@no-such.invalid:1/debug/cupool/: there is no host")
	require.NotContains(t, err.Error(), "secret")
}

// A server that answers without an end, or with more than a page has, is told what it is not.
func TestEndlessAnswers(t *testing.T) {
	endless := func(begin, again string) http.HandlerFunc {
		piece := []byte(strings.Repeat(again, 1<<10))
		return func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write([]byte(begin))
			for err == nil {
				_, err = w.Write(piece)
			}
		}
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	page := map[string]http.HandlerFunc{
		"pools": text(`[{"ID":"a"}]`), "stats": text(`{}`), "blocks": text(`{}`), "events": text(`[]`), "oom": text(`null`),
	}
	before := mostBytes
	mostBytes = map[string]int64{"pools": 1 << 10, "stats": 1 << 14, "blocks": 1 << 16, "events": 1 << 12, "oom": 1 << 10}
	defer func() { mostBytes = before }()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"pools":  {endless(`[`, `{},`), "pools: the answer has more than 1 KiB"},
		"stats":  {endless(`{`, `"Labels":[],`), "stats: the answer has more than 16 KiB"},
		"blocks": {endless(`{"labels":["`, `xxxxxxxx`), "blocks: the answer has more than 64 KiB"},
		"events": {endless(``, ` `), "events: the answer has more than 4 KiB"},
		"oom":    {endless(`"`, `x`), "oom: the answer has more than 1 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			for other, answer := range page {
				if other == name {
					answer = c.answer
				}
				mux.HandleFunc("/"+other, answer)
			}
			server := httptest.NewServer(mux)
			defer server.Close()
			err := Once(t.Context(), &strings.Builder{}, server.URL+"//", "", false)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "no debug page", "it may be one of many blocks")
		})
	}
	mostBytes = before
	many := httptest.NewServer(text("[" + strings.Repeat("{},", 1000) + "{}]"))
	defer many.Close()
	require.ErrorContains(t, Once(t.Context(), &strings.Builder{}, many.URL, "", false), "the program shows 1001 pools, more than 1000")
	strange := httptest.NewServer(text(`[{"ID":"a"}]`))
	defer strange.Close()
	require.ErrorContains(t, Once(t.Context(), &strings.Builder{}, strange.URL, "", false), "this is no debug page of cupool")
}

// A stranger's page, or file, may claim less than nothing, and sums that no int64 holds.
func TestClaims(t *testing.T) {
	for _, m := range []Memory{
		{Live: 5, Cached: -5},
		{Live: -1, Pending: -1, Cached: -1, Reserved: -1, Blocks: -1},
		{Live: math.MaxInt64, Pending: math.MaxInt64, Cached: 3},
		{Live: math.MinInt64, Pending: math.MaxInt64, Reserved: 1},
	} {
		v := &view{}
		for range 2 { // a curve has two states
			v.add(&State{Memory: m, Places: []Place{{Memory: m}}, Labels: []Holder{{Bytes: m.Live, Blocks: m.Blocks}}})
			require.NotEmpty(t, v.lines(plainWidth, 0))
		}
	}
}

// rows returns what a screen shows.
func rows(s tcell.SimulationScreen) string {
	cells, width, _ := s.GetContents()
	var sb strings.Builder
	for i, c := range cells {
		if i > 0 && i%width == 0 {
			sb.WriteByte('\n')
		}
		sb.WriteString(string(c.Runes))
	}
	return sb.String()
}

// A session watches a page on a simulated screen.
type session struct {
	screen tcell.SimulationScreen
	done   chan error
	shown  chan string
}

// shows is a screen that tells what is shown.
type shows struct {
	tcell.SimulationScreen
	to chan string
}

func (s *shows) Show() {
	s.SimulationScreen.Show()
	s.to <- rows(s.SimulationScreen)
}

func start(t *testing.T, v *view, ask func(context.Context) (*State, error)) *session {
	s := &session{screen: tcell.NewSimulationScreen("UTF-8"), done: make(chan error, 1), shown: make(chan string)}
	go func() {
		err := watch(t.Context(), &shows{s.screen, s.shown}, v, ask)
		close(s.shown)
		s.done <- err
	}()
	return s
}

// until waits until the screen shows a text.
func (s *session) until(t *testing.T, text string) string {
	t.Helper()
	var last string
	for last = range s.shown {
		if strings.Contains(last, text) {
			return last
		}
	}
	require.Fail(t, "never shown", "%q; at last\n%s", text, last)
	return ""
}

func (s *session) press(key tcell.Key, r rune) { s.screen.InjectKey(key, r, tcell.ModNone) }

// Keys pause, sort, change what is listed and quit; the view fits the screen.
func TestWatch(t *testing.T) {
	url, pool, _ := newPage(t)
	load(t, pool.WithLabel("weights"), 4<<20)
	c, err := newClient(url)
	require.NoError(t, err)
	v := &view{title: url, keys: true, interval: time.Millisecond}
	s := start(t, v, c.ask)

	s.until(t, "top.load")
	load(t, pool, 5<<20)
	out := s.until(t, "9 MiB")
	require.Contains(t, out, "a second")
	require.Len(t, strings.Split(out, "\n"), 25)

	s.press(tcell.KeyTab, 0)
	s.until(t, "LIVE BY LABEL, BY BYTES")
	s.until(t, "weights")
	s.press(tcell.KeyRune, 's')
	s.until(t, "LIVE BY LABEL, BY BLOCKS")
	s.press(tcell.KeyRune, ' ')
	s.until(t, "paused")
	s.press(tcell.KeyRune, '-')
	s.until(t, "every 250ms")
	s.screen.SetSize(50, 10)
	require.NoError(t, s.screen.PostEvent(tcell.NewEventResize(50, 10)))
	for out = range s.shown {
		if lines := strings.Split(out, "\n"); len(lines) == 10 && strings.HasPrefix(lines[9], "q quit") {
			break
		}
	}
	s.press(tcell.KeyRune, 'q')
	for range s.shown {
	}
	require.NoError(t, <-s.done)
}

// When the program is gone the last state stays, with the error, and when it is
// back the view goes on.
func TestReconnect(t *testing.T) {
	url, _, _ := newPage(t)
	c, err := newClient(url)
	require.NoError(t, err)
	answers := make(chan error)
	s := start(t, &view{title: url, interval: time.Millisecond}, func(ctx context.Context) (*State, error) {
		if err := <-answers; err != nil {
			return nil, err
		}
		return c.ask(ctx)
	})
	go func() { answers <- nil }()
	s.until(t, "allocator/batches")
	go func() { answers <- context.DeadlineExceeded }()
	require.Contains(t, s.until(t, "trying again"), "allocator/batches")
	go func() { answers <- nil }()
	for out := range s.shown {
		if !strings.Contains(out, "trying again") {
			break
		}
	}
	s.press(tcell.KeyCtrlC, 0)
	for range s.shown {
	}
	require.NoError(t, <-s.done)
	close(answers)
}

// A pool that was closed takes its counts along: how much the others' grew is not known then.
func TestRates(t *testing.T) {
	before := &State{Time: time.Unix(1, 0), Counts: Counts{Allocs: 100, Frees: 90, Hits: 40, Grown: 60, DriverAllocs: 60}}
	for _, c := range []struct {
		now Counts
		ok  bool
	}{
		{Counts{Allocs: 300, Frees: 290, Hits: 240, Grown: 60, DriverAllocs: 60}, true},
		{Counts{Allocs: 300, Frees: 290, Hits: 297, Grown: 3, DriverAllocs: 3}, false},
		{Counts{Allocs: 50, Frees: 290, Hits: 240, Grown: 60, DriverAllocs: 60}, false},
	} {
		r, ok := rates(before, &State{Time: time.Unix(3, 0), Counts: c.now})
		require.Equal(t, c.ok, ok, c.now)
		if ok {
			require.Equal(t, Counts{Allocs: 100, Frees: 100, Hits: 100}, r)
		}
	}
}

// + asks more often and - less often, also from an interval of -every that is none of those between
// which they choose.
func TestIntervals(t *testing.T) {
	for from, want := range map[time.Duration]struct{ plus, minus time.Duration }{
		100 * time.Millisecond: {100 * time.Millisecond, 250 * time.Millisecond},
		time.Second:            {500 * time.Millisecond, 2 * time.Second},
		3 * time.Second:        {2 * time.Second, 5 * time.Second},
		10 * time.Second:       {5 * time.Second, 10 * time.Second},
		time.Minute:            {10 * time.Second, time.Minute},
	} {
		for key, want := range map[rune]time.Duration{'+': want.plus, '-': want.minus} {
			v := &view{interval: from}
			require.False(t, v.handle(tcell.NewEventKey(tcell.KeyRune, key, tcell.ModNone)))
			require.Equal(t, want, v.interval, "%c from %v", key, from)
		}
	}
}
