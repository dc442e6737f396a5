package oomdump

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// files returns the names of a folder's files.
func files(t *testing.T, dir string) (names []string) {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by it")
	events := []snapshot.Event{{Number: 1, Kind: snapshot.OutOfMemory, Size: 1, Time: start}}
	of := snapshot.Snapshot{Device: "a device", Events: events, Pools: []snapshot.Snapshot{{Device: "a device", Pool: "private", Events: events}}}
	stem, err := Write(dir, start, "it is full", of)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, fmt.Sprintf("cupool-oom-20260102T030405.000000006Z-%d", os.Getpid())), stem)
	base := filepath.Base(stem)
	require.Equal(t, []string{base + ".pb.gz", base + ".pickle", base + ".txt"}, files(t, dir))
	text, err := os.ReadFile(stem + ".txt")
	require.NoError(t, err)
	require.Equal(t, "it is full", string(text))
	f, err := os.Open(stem + ".pickle")
	require.NoError(t, err)
	defer f.Close()
	list, err := snapshot.Read(f)
	require.NoError(t, err)
	n := 0
	for _, s := range list {
		for _, s := range s.Flat() {
			n += len(s.Events)
		}
	}
	require.Equal(t, 2, n)
}

// The last events stay, of each pool, and the caller's picture is as it was.
func TestEvents(t *testing.T) {
	events := make([]snapshot.Event, mostEvents+5)
	events[5].Number = 1
	of := snapshot.Snapshot{Events: events, Pools: []snapshot.Snapshot{{Events: events[1:]}, {Events: events[:1]}}}
	least := latest(of)
	for i, n := range []int{mostEvents, mostEvents, 1} {
		require.Len(t, least.Flat()[i].Events, n)
	}
	require.EqualValues(t, 1, least.Events[0].Number)
	require.Len(t, of.Events, mostEvents+5)
	require.Len(t, of.Pools[0].Events, mostEvents+4)
}

// The latest dumps stay, and so does what is somebody else's.
func TestNumber(t *testing.T) {
	dir := t.TempDir()
	others := []string{"cupool-oom-notes.txt", "cupool-oom-20260102T030405.000000006Z-1.txt.bak", "x"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	cut := filepath.Join(dir, ".cupool-oom-20250102T030405.000000006Z-1.pickle.0123456789abcdef.part")
	require.NoError(t, os.WriteFile(cut, nil, 0o600))
	for i := range MaxDumps + 2 {
		_, err := Write(dir, start.Add(time.Duration(i)*time.Second), "x", snapshot.Snapshot{})
		require.NoError(t, err)
	}
	names := files(t, dir)
	require.Len(t, names, 3*MaxDumps+len(others))
	require.Subset(t, names, others)
	for i := range MaxDumps {
		require.Contains(t, names, fmt.Sprintf("cupool-oom-20260102T0304%02d.000000006Z-%d.pickle", 5+2+i, os.Getpid()))
	}
}

// One file that is too large leaves the others.
func TestSize(t *testing.T) {
	dir := t.TempDir()
	stem, err := Write(dir, start, strings.Repeat("x", maxBytes+1), snapshot.Snapshot{})
	require.EqualError(t, err, "cannot write "+stem+".txt: it has more than 64 MiB")
	require.Len(t, files(t, dir), 2)
}

func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	stem, err := Write(file, start, "x", snapshot.Snapshot{})
	require.Equal(t, file, filepath.Dir(stem), "the files that are missing have names")
	require.ErrorContains(t, err, file)
}

func TestBounded(t *testing.T) {
	b := &bounded{io.Discard, 10}
	for _, c := range []struct {
		n  int
		ok bool
	}{{6, true}, {4, true}, {0, true}, {1, false}} {
		_, err := b.Write(make([]byte, c.n))
		require.Equal(t, c.ok, err == nil)
	}
}
