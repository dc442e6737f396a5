package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/snapshot"
)

func TestRun(t *testing.T) {
	for _, device := range []string{"host", "host:16MiB", "cuda"} {
		t.Run(device, func(t *testing.T) {
			if device == "cuda" {
				gputest.Need(t)
			}
			var out, errs bytes.Buffer
			if err := run(&out, &errs, options{device: device, rounds: fewRounds}); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"result: 3\n", "out of memory", "recovered: 4096 KiB"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

// Many rounds have no lines, and the files are of the moment when memory ran out.
func TestObserved(t *testing.T) {
	dir := t.TempDir()
	o := options{device: "host", rounds: fewRounds + 1, observe: observe.Options{Snapshot: dir + "/a.pickle", Profile: dir + "/a.pb.gz"}}
	var out bytes.Buffer
	require.NoError(t, run(&out, io.Discard, o))
	require.NotContains(t, out.String(), "round 0")
	require.Contains(t, out.String(), "result: 4\n")
	f, err := os.Open(o.observe.Snapshot)
	require.NoError(t, err)
	defer f.Close()
	pools, err := snapshot.Read(f)
	require.NoError(t, err)
	var live int64
	for _, seg := range pools[0].Segments {
		live += seg.Allocated
	}
	require.EqualValues(t, 40<<20, live)
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestFullDisk(t *testing.T) {
	require.ErrorIs(t, run(full{}, io.Discard, options{device: "host", rounds: fewRounds}), syscall.ENOSPC)
}

func TestBadFlags(t *testing.T) {
	require.ErrorIs(t, run(io.Discard, io.Discard, options{device: "toaster", rounds: fewRounds}), cupool.ErrInvalidConfig)
	require.NoError(t, (&options{rounds: 1}).check())
	require.ErrorContains(t, (&options{rounds: -1}).check(), "-rounds must be at least 1, not -1")
	require.ErrorContains(t, (&options{rounds: 1, args: []string{"cuda"}}).check(), `unexpected argument "cuda"`)
}
