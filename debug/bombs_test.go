package debug

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/bombs"
	"github.com/cupool/cupool/snapshot"
)

// gone is a browser that keeps nothing.
type gone struct{ http.ResponseWriter }

func (gone) Write(p []byte) (int, error) { return len(p), nil }

// A small file makes no view of the page take much memory.
func TestBombs(t *testing.T) {
	for name, data := range bombs.Snapshots(testkit.Choose(1<<16, 1<<12)) {
		list, err := snapshot.Read(bytes.NewReader(data))
		if err != nil {
			continue
		}
		for view := range views {
			if view == "snapshot" {
				continue // is as long as it is
			}
			t.Run(name+"/"+view, func(t *testing.T) {
				h := SnapshotHandler("x", list...)
				testkit.RequireAllocates(t, 32<<20, 2<<10, len(data), func() {
					r := httptest.NewRequest(http.MethodGet, "/"+view, nil)
					r.Host = "localhost"
					w := httptest.NewRecorder()
					h.ServeHTTP(gone{w}, r)
					require.Contains(t, []int{http.StatusOK, http.StatusConflict}, w.Code)
				})
			})
		}
	}
}

// JSON that would be too long is refused before it begins.
func TestRefusedJSON(t *testing.T) {
	p := snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: make([]snapshot.Block, 300)}}}
	stack := snapshot.Stack{{Function: strings.Repeat("f", 1<<20)}}
	for i := range p.Segments[0].Blocks {
		p.Segments[0].Blocks[i].Stack = stack
	}
	r := httptest.NewRequest(http.MethodGet, "/snapshot", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	SnapshotHandler("x", p).ServeHTTP(w, r)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "as JSON the snapshot has 300 MiB of labels and stacks, more than 256 MiB")
}

// An answer has the last event however long its stack is, and no more where there is
// no room.
func TestLastEvents(t *testing.T) {
	long := snapshot.Stack{{Function: strings.Repeat("f", mostEventBytes)}}
	all := []snapshot.Event{{Number: 1}, {Number: 2, Stack: long}, {Number: 3}, {Number: 4}, {Number: 5}}
	require.Equal(t, all[3:], last(all, 2))
	require.Equal(t, all[2:], last(all, maxEvents))
	require.Equal(t, all[1:2], last(all[:2], maxEvents))
	require.Empty(t, last(nil, maxEvents))

	many := make([]snapshot.Event, 100_000) // without labels and stacks
	answer, err := json.Marshal(last(many, math.MaxInt64))
	require.NoError(t, err)
	require.LessOrEqual(t, len(answer), mostEventBytes)
	require.Greater(t, len(answer), mostEventBytes/2)
}

// What is written block by block is what json.Marshal writes.
func TestWriteJSON(t *testing.T) {
	stack := snapshot.Stack{{Function: "<main>", File: "main.go", Line: 3}}
	for _, p := range []snapshot.Snapshot{
		{},
		{Device: "host", Segments: []snapshot.Segment{}},
		{Device: "host", Pool: "p", Segments: []snapshot.Segment{{Size: 3, Type: "null}", Blocks: []snapshot.Block{{Size: 3, Label: "null}", Stack: stack}, {Size: 1}}}, {}}},
		{Events: []snapshot.Event{{Number: 1, Stack: stack}, {Number: 2}}, Totals: []snapshot.Total{{Stack: stack, Bytes: 1.5}, {}}},
		{Segments: []snapshot.Segment{}, Pools: []snapshot.Snapshot{{Pool: "p", Segments: []snapshot.Segment{}}, {Pool: "q", Segments: []snapshot.Segment{}}}},
	} {
		var got bytes.Buffer
		writeJSON(&got, &p)
		var back snapshot.Snapshot
		require.NoError(t, json.Unmarshal(got.Bytes(), &back), got.String())
		if p.Segments == nil {
			p.Segments = []snapshot.Segment{} // a list at any rate
		}
		for i := range p.Segments {
			if p.Segments[i].Blocks == nil {
				p.Segments[i].Blocks = []snapshot.Block{}
			}
		}
		require.Equal(t, p, back)
	}
}
