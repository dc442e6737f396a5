package debug

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/debugtest"
	"github.com/cupool/cupool/snapshot"
)

// ask sends a request and returns the status and the body.
func ask(t *testing.T, h http.Handler, method, target string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.Host = "localhost"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// get reads JSON.
func get[T any](t *testing.T, h http.Handler, target string) (v T) {
	t.Helper()
	status, body := ask(t, h, "GET", target)
	require.Equal(t, 200, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &v), body)
	return v
}

// Every path answers, below any prefix, with what the allocator itself says.
func TestPaths(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything()})
	debugtest.Work(t, c, 2)
	p, err := c.NewPool(cupool.PoolConfig{Name: "graphs"})
	require.NoError(t, err)
	_, err = p.Alloc(1<<20, nil)
	require.NoError(t, err)

	mux := http.NewServeMux()
	h := Handler(c)
	mux.Handle("/debug/cupool/", h)
	mux.Handle("/a/b/", http.StripPrefix("/a/b", h))
	for _, prefix := range []string{"/debug/cupool/", "/a/b/"} {
		assert.Equal(t, []info{
			{ID: "allocator", Name: "allocator", Device: "sim", Live: true, History: true, Record: true},
			{ID: "allocator/graphs", Name: "graphs", Private: true, Device: "sim", Live: true, History: true, Record: true},
		}, get[[]info](t, mux, prefix+"pools"))
		assert.Equal(t, c.Stats(), get[cupool.Stats](t, mux, prefix+"stats"))
		assert.Equal(t, p.Stats(), get[cupool.Stats](t, mux, prefix+"stats?pool=allocator/graphs"))
		assert.Equal(t, c.Stats().Labels, get[[]cupool.LabelStats](t, mux, prefix+"labels"))
		assert.Equal(t, c.Settings(), get[[]cupool.Setting](t, mux, prefix+"settings"))
		assert.Equal(t, c.Snapshot().Segments, get[snapshot.Snapshot](t, mux, prefix+"snapshot").Segments)
		over := get[series](t, mux, prefix+"series")
		require.NotEmpty(t, over.Time)
		assert.NotContains(t, get[series](t, mux, prefix+"series?after=0").Time, over.Time[0], "it is sample 0")
		assert.Empty(t, get[series](t, mux, prefix+"series?after=999999").Time)
		events := get[[]snapshot.Event](t, mux, prefix+"events?after=7&limit=3")
		require.Len(t, events, 3)
		assert.Greater(t, events[0].Number, uint64(7))
		assert.Empty(t, get[[]snapshot.Event](t, mux, prefix+"events?after=999999"))
		all := get[[]snapshot.Event](t, mux, prefix+"events")
		assert.EqualValues(t, 1, all[0].Number)

		_, text := ask(t, mux, "GET", prefix+"stats.txt")
		assert.Contains(t, text, "weights")
		_, pickle := ask(t, mux, "GET", prefix+"snapshot.pickle")
		read, err := snapshot.Read(strings.NewReader(pickle))
		require.NoError(t, err)
		assert.Len(t, read, 2)
		_, heap := ask(t, mux, "GET", prefix+"heap")
		prof, err := profile.ParseData([]byte(heap))
		require.NoError(t, err)
		assert.NotEmpty(t, prof.Sample)

		status, page := ask(t, mux, "GET", prefix)
		assert.Equal(t, 200, status)
		assert.Contains(t, page, "<!doctype html>")
		for _, file := range []string{"page.js", "page.css", "icon.svg"} {
			assert.Contains(t, page, `"`+file+`"`)
			status, _ := ask(t, mux, "GET", prefix+file)
			assert.Equal(t, 200, status, file)
		}
	}
}

// Settings tell what is set for an allocator, and nothing else of the environment. A snapshot has none.
func TestSettings(t *testing.T) {
	t.Setenv("CUPOOL_LIMIT", "64M")
	t.Setenv("CUPOOL_"+"NOBODY_KNOWS", "hidden")
	t.Setenv("CUPOOL_DIST_TOKEN", "hidden")
	t.Setenv("TOKEN", "hidden")
	c := debugtest.NewPool(t, cupool.Config{Decay: time.Hour})
	h := http.StripPrefix("/", Handler(c))
	_, body := ask(t, h, "GET", "/settings")
	assert.Contains(t, body, `{"Field":"Limit","Key":"limit","Value":"64M","Source":"CUPOOL_LIMIT","Unused":""}`)
	assert.Contains(t, body, `{"Field":"Decay","Key":"decay","Value":"1h0m0s","Source":"program","Unused":""}`)
	assert.NotContains(t, body, "hidden")
	assert.NotContains(t, body, "NOBODY")

	_, err := c.Alloc(65<<20, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	status, body := ask(t, h, "GET", "/settings?moment=oom")
	assert.Equal(t, 200, status)
	assert.Equal(t, "[]", body)
}

// The path without its slash leads to the one with it.
func TestSlash(t *testing.T) {
	h := http.StripPrefix("/memory", Handler())
	r := httptest.NewRequest("GET", "/memory", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusFound, w.Code)
	assert.Equal(t, "./memory/", w.Header().Get("Location"))

	var refused *refusal
	r.RequestURI = "/"
	require.ErrorAs(t, toSlash(w, r), &refused)
	assert.Equal(t, http.StatusNotFound, refused.status)
}

// What is wrong with a request is said, with the right status.
func TestRefusals(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{})
	h := Handler(c)
	for _, x := range []struct {
		method, target string
		status         int
		text           string
	}{
		{"GET", "/stats?pool=none", 404, `there is no allocator or pool \"none\"`},
		{"GET", "/blocks?moment=oom", 404, "there is no snapshot of an allocation that failed"},
		{"GET", "/blocks?moment=then", 400, `moment \"then\" is neither oom nor first-oom`},
		{"GET", "/events?after=-1", 400, "is no whole number from 0 on"},
		{"GET", "/series?after=x", 400, "after=\\\"x\\\" is no whole number from -1 on"},
		{"GET", "/events?limit=0", 400, "is no whole number from 1 on"},
		{"GET", "/nothing", 404, `there is no \"nothing\" here`},
		{"GET", "/page", 404, "there is no"},
		{"GET", "/trim", 405, "changes take a POST"},
		{"POST", "/stats", 405, "stats is read with GET"},
		{"DELETE", "/trim", 405, "changes take a POST"},
		{"POST", "/history?on=2", 400, "is neither 1 nor 0"},
		{"POST", "/history?on=1&events=1048577", 400, "is more than"},
		{"POST", "/history?on=1&sample=0", 400, "is no whole number from 1 on"},
		{"POST", "/trim?keep=-1", 400, "is no whole number from 0 on"},
		{"POST", "/trim?pool=none", 404, `there is no allocator or pool \"none\"`},
	} {
		status, body := ask(t, h, x.method, x.target)
		assert.Equal(t, x.status, status, x.target)
		assert.Contains(t, body, x.text, x.target)
	}
	saved := SnapshotHandler("x", c.Snapshot())
	status, _ := ask(t, saved, "GET", "/pools")
	assert.Equal(t, 200, status)
	status, body := ask(t, saved, "POST", "/trim")
	assert.Equal(t, 409, status)
	assert.Contains(t, body, "a snapshot does not change")
	status, body = ask(t, newServer(func() []entry { return nil }), "GET", "/stats")
	assert.Equal(t, 404, status)
	assert.Contains(t, body, "there is no open allocator")
}

// Only a POST of the same origin, or of no browser, changes anything.
func TestOrigins(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{Backing: cupool.BackingSegments})
	h := Handler(c)
	for _, x := range []struct {
		header []string
		status int
	}{
		{nil, 200},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Origin", "http://localhost"}, 200}, // which the requests are for
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Origin", "https://elsewhere.example"}, 403},
	} {
		b, err := c.Alloc(32<<20, nil)
		require.NoError(t, err)
		require.NoError(t, c.Free(b))
		status, body := ask(t, h, "POST", "/trim", x.header...)
		assert.Equal(t, x.status, status, "%v %s", x.header, body)
		assert.Equal(t, x.status == 403, strings.Contains(body, "changes are for pages of the same origin"), body)
		assert.Equal(t, x.status == 403, c.Stats().All.ReservedBytes.Current > 0, x.header)
	}
	b, err := c.Alloc(32<<20, nil)
	require.NoError(t, err)
	require.NoError(t, c.Free(b))
	_, body := ask(t, h, "POST", "/trim?keep=99999999")
	assert.JSONEq(t, `{"released": 0}`, body)
	_, body = ask(t, h, "POST", "/empty")
	assert.JSONEq(t, `{}`, body)
	assert.Zero(t, c.Stats().All.ReservedBytes.Current)
}

// A header says what an answer is, which method would be right, and under which name a
// browser saves a file: of letters, digits, points and strokes.
func TestContent(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{})
	h := SnapshotHandler("/Aa/Zz-09.p:@[`{é", c.Snapshot())
	for _, x := range []struct{ method, target, header, want string }{
		{"GET", "/stats", "Content-Type", "application/json"},
		{"GET", "/stats.txt", "Content-Type", "text/plain; charset=utf-8"},
		{"GET", "/snapshot", "Content-Type", "application/json"},
		{"GET", "/snapshot.pickle", "Content-Type", "application/octet-stream"},
		{"GET", "/heap", "Content-Type", "application/octet-stream"},
		{"GET", "/heap", "Content-Disposition", `attachment; filename="cupool-_Aa_Zz-09.p______.pb.gz"`},
		{"POST", "/stats", "Allow", "GET, HEAD"},
		{"GET", "/trim", "Allow", "POST"},
	} {
		r := httptest.NewRequest(x.method, x.target, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, x.want, w.Header().Get(x.header), x.target)
	}
}

// The page is safe from what others could do with it.
func TestHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/debug/cupool/", nil))
	h := w.Header()
	assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
	assert.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
	assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	assert.Equal(t, "no-store", h.Get("Cache-Control"))
	assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
	assert.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
}

// What did not change is not sent again, and large answers are compressed.
func TestUnchanged(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything()})
	debugtest.Work(t, c, 3)
	h := Handler(c)
	send := func(tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://localhost/blocks", nil)
		r.Header.Set("If-None-Match", tag)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	first := send("")
	require.Equal(t, 200, first.Code)
	assert.Equal(t, "gzip", first.Header().Get("Content-Encoding"))
	assert.Equal(t, "Accept-Encoding", first.Header().Get("Vary"))
	z, err := gzip.NewReader(first.Body)
	require.NoError(t, err)
	sent, err := io.ReadAll(z)
	require.NoError(t, err)
	_, plain := ask(t, h, "GET", "/blocks")
	assert.Equal(t, plain, string(sent))
	again := send(first.Header().Get("ETag"))
	assert.Equal(t, http.StatusNotModified, again.Code)
	assert.Zero(t, again.Body.Len())
	_, err = c.Alloc(1<<20, nil)
	require.NoError(t, err)
	assert.Equal(t, 200, send(first.Header().Get("ETag")).Code)
}

// Answers are compressed for readers that take gzip, as their headers say.
func TestTakesGzip(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything()})
	debugtest.Work(t, c, 3)
	h := Handler(c)
	for accept, want := range map[string]string{
		"": "", "br": "", "gzip;q=0": "", "br, gzip; q=0.000": "", "notgzip": "",
		"gzip": "gzip", "deflate, GZIP ;q=0.5": "gzip", "gzip;q=0.001, br": "gzip", "gzip;q=": "gzip",
	} {
		r := httptest.NewRequest("GET", "http://localhost/blocks", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Header().Get("Content-Encoding"), accept)
	}
}

// A pool that is closed while it is asked is not found, as one that was closed before.
func TestFailOfClosed(t *testing.T) {
	w := httptest.NewRecorder()
	fail(w, fmt.Errorf("trim: %w", cupool.ErrClosed))
	assert.Equal(t, http.StatusNotFound, w.Code)
	w = httptest.NewRecorder()
	fail(w, cupool.ErrAsleep)
	assert.Equal(t, http.StatusConflict, w.Code)
}

// What labels and stacks take is added up wherever they stand.
func TestTextsOfAll(t *testing.T) {
	labels := snapshot.Snapshot{
		Segments: []snapshot.Segment{{Blocks: []snapshot.Block{{Label: "a"}}}},
		Events:   []snapshot.Event{{Label: "bc"}},
		Totals:   []snapshot.Total{{Label: "defg"}},
	}
	var all texts
	all.addAll(&snapshot.Snapshot{Pools: []snapshot.Snapshot{labels, labels}})
	assert.EqualValues(t, 2*7, all.sum)
}

// The series of a pool last as long as it is open.
func TestRings(t *testing.T) {
	var r rings
	one, two, three := debugtest.NewPool(t, cupool.Config{}), debugtest.NewPool(t, cupool.Config{}), debugtest.NewPool(t, cupool.Config{})
	first := r.of(one)
	r.of(two)
	assert.True(t, first == r.of(one))
	require.NoError(t, two.Close())
	r.of(three)
	assert.Len(t, r.all, 2)
	assert.True(t, first == r.of(one))
}

// What is published is shown until it is removed or closed, under names of its own.
func TestPublish(t *testing.T) {
	ids := func() (all []string) {
		for _, p := range get[[]info](t, http.DefaultServeMux, "/debug/cupool/pools") {
			all = append(all, p.ID)
		}
		return all
	}
	require.Empty(t, ids())
	one, two := debugtest.NewPool(t, cupool.Config{}), debugtest.NewPool(t, cupool.Config{})
	for _, c := range []*cupool.Pool{one, two} {
		_, err := c.NewPool(cupool.PoolConfig{Name: "graphs"})
		require.NoError(t, err)
	}
	remove := Publish("net", one)
	Publish("net", two)
	require.Equal(t, []string{"net", "net/graphs", "net (2)", "net (2)/graphs"}, ids())
	remove()
	remove()
	require.Equal(t, []string{"net", "net/graphs"}, ids())
	remove = Publish("alone", one.Pools()[0])
	require.Equal(t, []string{"net", "net/graphs", "alone"}, ids(), "a private pool has no pools")
	remove()
	require.NoError(t, two.Close())
	remove = Publish("net", one)
	require.Len(t, published.all, 1, "what was closed goes when others come")
	remove()
	require.Empty(t, ids())
	require.Empty(t, published.all)
}

// The statistics of a snapshot are those of the allocator.
func TestFrozenStats(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		c := debugtest.NewPool(t, cupool.Config{Backing: backing, MagazineBytes: -1})
		debugtest.Work(t, c, 5)
		idle, err := c.Alloc(40<<20, nil) // a segment of its own
		require.NoError(t, err)
		require.NoError(t, c.Free(idle))
		st, got := c.Stats(), statsOf(c.Snapshot())
		for _, x := range [][2]int64{
			{st.LiveBytes, got.LiveBytes}, {st.PendingBytes, got.PendingBytes}, {st.CachedBytes, got.CachedBytes}, {st.LargestFree, got.LargestFree},
			{st.All.ReservedBytes.Current, got.All.ReservedBytes.Current}, {st.Small.ReservedBytes.Current, got.Small.ReservedBytes.Current},
			{st.All.RequestedBytes.Current, got.All.RequestedBytes.Current}, {st.All.Allocation.Current, got.All.Allocation.Current},
			{st.Large.ActiveBytes.Current, got.Large.ActiveBytes.Current}, {st.All.Active.Current, got.All.Active.Current},
			{st.All.InactiveSplit.Current, got.All.InactiveSplit.Current}, {st.All.InactiveSplitBytes.Current, got.All.InactiveSplitBytes.Current},
			{st.Streams, got.Streams}, {st.FreeBlocks, got.FreeBlocks}, {st.BlocksPending, got.BlocksPending},
		} {
			assert.Equal(t, x[0], x[1], backing)
		}
		assert.NotZero(t, st.FreeBlocks)
		assert.Equal(t, []any{st.Device, st.Pool, st.Labels}, []any{got.Device, got.Pool, got.Labels})
	}
}

// A label has the blocks that are in use, and those that wait.
func TestFrozenLabels(t *testing.T) {
	var blocks []snapshot.Block
	for _, state := range []snapshot.State{snapshot.Live, snapshot.Pending, snapshot.Cached, snapshot.Free} {
		blocks = append(blocks, snapshot.Block{Requested: 3, State: state, Label: "b"})
	}
	blocks = append(blocks, snapshot.Block{Requested: 5, State: snapshot.Live, Label: "a"}, snapshot.Block{Requested: 7, State: snapshot.Live})
	st := statsOf(snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: blocks}}})
	require.EqualValues(t, 1, st.BlocksPending)
	got := st.Labels
	require.Len(t, got, 2)
	require.Equal(t, []any{"a", int64(1), int64(5)}, []any{got[0].Label, got[0].Blocks.Current, got[0].Bytes.Current})
	require.Equal(t, []any{"b", int64(2), int64(6)}, []any{got[1].Label, got[1].Blocks.Current, got[1].Bytes.Current})
}

// One snapshot has the name of its file, and several those of what they are of.
func TestFrozenNames(t *testing.T) {
	ids := func(all ...snapshot.Snapshot) (ids []string) {
		for _, in := range newFrozenServer("x.json", all).pools() {
			ids = append(ids, in.ID+" "+in.Name)
		}
		return ids
	}
	one := snapshot.Snapshot{Device: "cuda:0"}
	require.Equal(t, []string{"x.json x.json"}, ids(one))
	require.Equal(t, []string{"cuda:0 cuda:0", "cuda:0/p p", "cuda:0 (2) cuda:0", "x.json x.json"},
		ids(one, snapshot.Snapshot{Device: "cuda:0", Pool: "p"}, one, snapshot.Snapshot{}))
}

// Free blocks are counted as the allocator does: what magazines cache is in use for its segment.
func TestFrozenSplits(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{Backing: cupool.BackingSegments})
	small, err := c.Alloc(1000, nil)
	require.NoError(t, err)
	large, err := c.Alloc(3<<20, nil)
	require.NoError(t, err)
	check := func() {
		want, got := c.Stats().All, statsOf(c.Snapshot()).All
		require.Positive(t, got.InactiveSplit.Current)
		require.Equal(t, want.InactiveSplit.Current, got.InactiveSplit.Current)
		require.Equal(t, want.InactiveSplitBytes.Current, got.InactiveSplitBytes.Current)
	}
	check()
	require.NoError(t, c.Free(small))
	require.NoError(t, c.Free(large))
	require.Contains(t, c.Snapshot().Layout(), "[Cached ")
	check()
}

// Memory over time goes back from what a snapshot holds through its events.
func TestCourse(t *testing.T) {
	at := time.UnixMilli(1e12)
	p := snapshot.Snapshot{
		Segments: []snapshot.Segment{{Size: 100, Active: 60, Blocks: []snapshot.Block{{Size: 60, Requested: 60, State: snapshot.Live}, {Size: 40, State: snapshot.Free}}}},
		Events: []snapshot.Event{
			{Number: 1, Kind: snapshot.SegmentAlloc, Size: 100, Time: at},
			{Number: 2, Kind: snapshot.Alloc, Size: 40, Time: at.Add(time.Second)},
			{Number: 3, Kind: snapshot.Alloc, Size: 60, Time: at.Add(2 * time.Second)},
			{Number: 4, Kind: snapshot.FreeRequested, Size: 40, Time: at.Add(3 * time.Second)},
			{Number: 5, Kind: snapshot.FreeCompleted, Size: 40, Time: at.Add(4 * time.Second)},
			{Number: 6, Kind: snapshot.SegmentAlloc, Size: 30, Time: at.Add(5 * time.Second)},
			{Number: 7, Kind: snapshot.SegmentFree, Size: 30, Time: at.Add(6 * time.Second)},
		},
	}
	got := courseOf(p)
	assert.Equal(t, []int64{0, 40, 100, 60, 60, 60, 60}, got.Live)
	assert.Equal(t, []int64{0, 40, 100, 60, 60, 60, 60}, got.Requested)
	assert.Equal(t, []int64{0, 0, 0, 40, 0, 0, 0}, got.Pending)
	assert.Equal(t, []int64{100, 100, 100, 100, 100, 130, 100}, got.Reserved)
	assert.Equal(t, []int64{100, 100, 100, 100, 100, 130, 130}, got.Peak)
	assert.Equal(t, at.UnixMilli(), got.Time[0])
	assert.Equal(t, []int64{60, 60, 60}, got.after(3).Live)

	// Events that do not fit what the snapshot holds lead to nothing, not below it.
	got = courseOf(snapshot.Snapshot{Events: []snapshot.Event{
		{Number: 1, Kind: snapshot.FreeCompleted, Size: 5},
		{Number: 2, Kind: snapshot.FreeRequested, Size: 40},
		{Number: 3, Kind: snapshot.Alloc, Size: 60},
		{Number: 4, Kind: snapshot.Alloc, Size: 70},
		{Number: 5, Kind: snapshot.SegmentAlloc, Size: 80},
		{Number: 6, Kind: snapshot.SegmentMap, Size: 90},
	}})
	none := make([]int64, 6)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6}, got.Time, "without times, the numbers")
	assert.Equal(t, []int64{40, 0, 0, 0, 0, 0}, got.Live)
	assert.Equal(t, []int64{40, 0, 0, 0, 0, 0}, got.Requested)
	assert.Equal(t, [][]int64{none, none, none}, [][]int64{got.Pending, got.Reserved, got.Peak})

	// Those that claim more than there can be end at the most that an int64 holds.
	got = courseOf(snapshot.Snapshot{
		Segments: []snapshot.Segment{{Blocks: []snapshot.Block{{Size: 8, Requested: 8, State: snapshot.Live}}}},
		Events: []snapshot.Event{
			{Number: 1},
			{Number: 2, Kind: snapshot.FreeRequested, Size: math.MaxInt64},
			{Number: 3, Kind: snapshot.FreeCompleted, Size: math.MaxInt64 / 2, Weight: 4},
			{Number: 4, Kind: snapshot.SegmentFree, Size: math.MaxInt64},
		},
	})
	assert.Equal(t, []int64{math.MaxInt64, 8, 8, 8}, got.Live)
	assert.Equal(t, []int64{math.MaxInt64, 8, 8, 8}, got.Requested)
	assert.Equal(t, []int64{0, math.MaxInt64, 0, 0}, got.Pending)
	assert.Equal(t, []int64{math.MaxInt64, math.MaxInt64, math.MaxInt64, 8}, got.Reserved)
}

// Of twice as many events as there may be samples, every second makes one; the last one
// is the present.
func TestCourseOfMany(t *testing.T) {
	for _, x := range []struct{ events, samples int }{
		{1, 1}, {maxSamples, maxSamples}, {2*maxSamples - 1, 2*maxSamples - 1}, {2 * maxSamples, maxSamples}, {2*maxSamples + 1, maxSamples + 1},
	} {
		p := snapshot.Snapshot{Events: make([]snapshot.Event, x.events)}
		for i := range p.Events {
			p.Events[i] = snapshot.Event{Number: uint64(i + 1)}
		}
		got := courseOf(p).Time
		assert.Len(t, got, x.samples)
		assert.EqualValues(t, x.events, got[len(got)-1])
	}
}

// The ring keeps so many samples and not more, and takes none too soon.
func TestRing(t *testing.T) {
	var r ring
	now := time.UnixMilli(1e12)
	first := new(ring).sample(now, func() cupool.Stats { return cupool.Stats{} })
	require.Len(t, first.after(-1).Live, 1)
	require.Empty(t, first.after(math.MaxInt64).Live)
	for i := range maxSamples + 10 {
		r.sample(now.Add(time.Duration(i)*sampleInterval), func() cupool.Stats { return cupool.Stats{LiveBytes: int64(i)} })
	}
	got := r.sample(now.Add(time.Duration(maxSamples+9)*sampleInterval+sampleInterval/2), func() cupool.Stats { panic("too soon") })
	require.Len(t, got.Live, maxSamples)
	require.EqualValues(t, 10, got.First)
	require.EqualValues(t, maxSamples+9, got.Live[maxSamples-1])
	require.EqualValues(t, maxSamples+9, got.after(got.First + maxSamples - 2).Live[0])
	require.Empty(t, got.after(got.First+maxSamples).Live)
}

// Whatever is asked, a handler neither panics nor fails, and changes nothing but by a
// POST of the same origin.
func FuzzHandler(f *testing.F) {
	for _, target := range []string{"/debug/cupool/", "/debug/cupool/stats?pool=allocator", "/x/trim?keep=0", "/history?on=1&events=5&sample=1", "/events?after=1&limit=2", "/../page.js", "//", "/page/", "/blocks?moment=oom", "/empty?pool=allocator/p"} {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			f.Add(method, target, "Origin", "http://evil.example")
			f.Add(method, target, "Sec-Fetch-Site", "same-origin")
			f.Add(method, target, "Accept-Encoding", "gzip")
		}
	}
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), Backing: cupool.BackingSegments})
	require.NoError(f, err)
	f.Cleanup(func() { _ = c.Close() }) // the fuzzer ends it in the middle
	h := Handler(c)
	f.Fuzz(func(t *testing.T, method, target, key, value string) {
		r, err := http.NewRequest(method, "http://here/", nil)
		if err != nil {
			t.Skip()
		}
		if u, err := r.URL.Parse(target); err == nil {
			r.URL = u
		}
		r.RequestURI, r.Host = target, "here"
		r.Header.Set(key, value)
		b, err := c.Alloc(32<<20, nil)
		require.NoError(t, err)
		require.NoError(t, c.Free(b))
		before := c.Stats().All.ReservedBytes.Current
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Less(t, w.Code, 500, w.Body)
		after := c.Stats().All.ReservedBytes.Current
		if method != http.MethodPost || w.Code == http.StatusForbidden {
			require.Equal(t, before, after)
		}
		_, err = io.Copy(io.Discard, bytes.NewReader(w.Body.Bytes()))
		require.NoError(t, err)
	})
}

// History is switched by POST, and says so.
func TestHistory(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{})
	h := Handler(c)
	on := func() bool { return get[[]info](t, h, "/pools")[0].History }
	require.False(t, on())
	status, body := ask(t, h, "POST", "/history?on=1&events=100&sample=1")
	require.Equal(t, 200, status, body)
	require.True(t, on())
	require.Equal(t, &cupool.History{Events: 100, SampleBytes: 1}, c.Config().History)
	for _, target := range []string{"/history?on=1&events=0", "/history?on=1&sample=0"} {
		status, _ = ask(t, h, "POST", target)
		require.Equal(t, 400, status, target)
	}
	_, err := c.Alloc(1<<20, nil)
	require.NoError(t, err)
	require.NotEmpty(t, get[[]snapshot.Event](t, h, "/events"))
	status, _ = ask(t, h, "POST", "/history?on=0")
	require.Equal(t, 200, status)
	require.False(t, on())
}

// A pool's events are its own, not those of another one of its name.
func TestEventsOfPoolsOfOneName(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything()})
	for n := range 3 {
		p, err := c.NewPool(cupool.PoolConfig{Name: "twin"})
		require.NoError(t, err)
		for range n + 1 {
			b, err := p.Alloc(5000, nil)
			require.NoError(t, err)
			require.NoError(t, p.Free(b))
		}
	}
	require.NoError(t, c.Pools()[0].Close())
	h, seen := Handler(c), map[uint64]bool{}
	for i, p := range get[[]info](t, h, "/pools")[1:] {
		allocs := 0
		for _, e := range get[[]snapshot.Event](t, h, "/events?pool="+url.QueryEscape(p.ID)) {
			require.False(t, seen[e.Number], "it is another's")
			seen[e.Number] = true
			if e.Kind == snapshot.Alloc {
				allocs++
			}
		}
		require.Equal(t, i+2, allocs, p.ID)
	}
}

// The moment of an allocation that failed stays.
func TestMoment(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{Limit: 64 << 20})
	h := Handler(c)
	_, body := ask(t, h, "GET", "/oom")
	require.Equal(t, "null", body)
	b, err := c.Alloc(40<<20, nil)
	require.NoError(t, err)
	before := time.Now()
	_, err = c.Alloc(50<<20, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.NoError(t, c.Free(b))
	x := get[failure](t, h, "/oom")
	assert.EqualValues(t, 50<<20, x.Asked)
	assert.Equal(t, err.Error(), x.Text)
	assert.True(t, x.Moment)
	assert.WithinDuration(t, before, x.Time, time.Minute)
	assert.EqualValues(t, 40<<20, get[cupool.Stats](t, h, "/stats?moment=oom").LiveBytes)
	assert.Zero(t, get[cupool.Stats](t, h, "/stats").LiveBytes)
	assert.Equal(t, []string{
		"cause: limit", "held: 1 block, 40 MiB, not recorded where",
		"to see which lines hold memory, set Config.History or call Pool.StartHistory",
	}, x.Why)
	assert.Nil(t, x.First)

	// The first moment stays beside the last one.
	for range 20 {
		_, err = c.Alloc(60<<30, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	last := get[failure](t, h, "/oom")
	assert.EqualValues(t, 60<<30, last.Asked)
	assert.Equal(t, x.Text, last.First.Text)
	assert.EqualValues(t, 40<<20, get[cupool.Stats](t, h, "/stats?moment=first-oom").LiveBytes)
}
