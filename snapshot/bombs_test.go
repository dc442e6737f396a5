package snapshot_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/bombs"
	"github.com/cupool/cupool/snapshot"
)

// requireBounded checks that what was read of n bytes has no more parts than Read
// promises: whoever walks it, and looks at a stack once, takes no more steps.
func requireBounded(t *testing.T, n int, list []snapshot.Snapshot) {
	t.Helper()
	parts, text := len(list), 0
	seen := map[*snapshot.Frame]bool{}
	count := func(texts string, s snapshot.Stack) {
		parts++
		text += len(texts)
		require.LessOrEqual(t, len(s), 1024)
		if len(s) == 0 || seen[&s[0]] {
			return
		}
		seen[&s[0]] = true
		for _, f := range s {
			text += len(f.Function) + len(f.File)
		}
	}
	for _, s := range list {
		parts += len(s.Segments)
		text += len(s.Device) + len(s.Pool)
		for _, seg := range s.Segments {
			text += len(seg.Type)
			for _, b := range seg.Blocks {
				count(b.Label, b.Stack)
			}
		}
		for _, e := range s.Events {
			count(e.Label+string(e.Kind)+e.Pool, e.Stack)
		}
		for _, x := range s.Totals {
			count(x.Label, x.Stack)
		}
	}
	require.LessOrEqual(t, parts, n+1)
	require.LessOrEqual(t, text, 1<<20+256*n)
}

// A small file makes nobody do much: to read it, to add it up, or to write it in
// another form.
func TestBombs(t *testing.T) {
	for name, data := range bombs.Snapshots(testkit.Choose(1<<20, 1<<14)) {
		t.Run(name, func(t *testing.T) {
			var list []snapshot.Snapshot
			var err error
			testkit.RequireAllocates(t, 2<<20, 1<<10, len(data), func() { list, err = snapshot.Read(bytes.NewReader(data)) })
			if err != nil {
				var damage *snapshot.FormatError
				require.ErrorAs(t, err, &damage)
				t.Log(err)
				return
			}
			requireBounded(t, len(data), list)
			for name, f := range map[string]func(){
				"lines":   func() { snapshot.LinesOf(list...) },
				"holders": func() { snapshot.HoldersOf(list...) },
				"profile": func() { require.NoError(t, snapshot.WriteProfile(io.Discard, list...)) },
				"torch":   func() { require.NoError(t, snapshot.WriteTorch(io.Discard, list...)) },
			} {
				t.Run(name, func(t *testing.T) { testkit.RequireAllocates(t, 4<<20, 1<<10, len(data), f) })
			}
		})
	}
}
