package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// small are the flags of a run in a test.
func small(t *testing.T) []string {
	return []string{
		"-device", "host:512MiB", "-limit", "192MiB", "-workers", "12", "-streams", "5",
		"-duration", testkit.Choose(8*time.Second, 2*time.Second).String(),
		"-out", filepath.Join(t.TempDir(), "samples.jsonl"),
	}
}

// A sound allocator passes, with either backing, and the samples are in the
// file. A run this short does not say what stays flat.
func TestSoak(t *testing.T) {
	for name, more := range map[string][]string{"virtual memory": nil, "segments": {"-segments"}} {
		t.Run(name, func(t *testing.T) { testSoak(t, append(small(t), more...)) })
	}
}

func testSoak(t *testing.T, args []string) {
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	sum, err := soakFor(context.Background(), o, io.Discard)
	require.NoError(t, err)
	require.True(t, sum.OK)
	require.False(t, sum.Judged)
	require.Zero(t, sum.Corruptions+sum.Leaks+sum.FalseErrors, "%s\nseed %d", sum.verdict(), sum.Seed)
	require.NotZero(t, sum.Compared)
	require.NotZero(t, sum.Streams)
	text, err := os.ReadFile(o.out)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, sum.Samples)
	var s sample
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &s))
	require.NotZero(t, s.Operations)
	require.NotZero(t, s.Reserved)
	require.NotZero(t, s.Streams)
}

// What is broken on purpose is found. What is not closed or not freed shows in the
// books at a quiet moment, or at the end.
func TestFinds(t *testing.T) {
	for plant, found := range map[string]func(*summary) bool{
		plantStream: func(s *summary) bool { return s.Leaks > 0 },
		plantBlock:  func(s *summary) bool { return s.Leaks > 0 },
		plantEvent: func(s *summary) bool {
			return strings.Contains(strings.Join(s.Grown, "\n"), "the device's events grew")
		},
		plantPattern:    func(s *summary) bool { return s.Corruptions > 0 },
		plantUnrecorded: func(s *summary) bool { return s.Corruptions+s.FalseErrors > 0 }, // or the device is lost
		plantError:      func(s *summary) bool { return s.FalseErrors > 0 },
	} {
		t.Run(plant, func(t *testing.T) {
			o, err := parse(small(t), io.Discard)
			require.NoError(t, err)
			o.plant = plant
			if plant != plantEvent { // which shows in the samples, others end the run
				o.duration = time.Minute
			}
			sum, err := soakFor(context.Background(), o, io.Discard)
			require.NoError(t, err)
			require.False(t, sum.OK)
			require.True(t, found(&sum), "%s\nseed %d", sum.verdict(), sum.Seed)
		})
	}
}

// Ctrl-C ends a run early, with its summary.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	var out, errs bytes.Buffer
	status := run(ctx, append(small(t), "-duration", "1h"), &out, &errs)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var sum summary
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &sum))
	require.Zero(t, sum.Corruptions+sum.Leaks+sum.FalseErrors, sum.verdict())
	require.Equal(t, exitOK, status, errs.String())
	require.Less(t, sum.Seconds, time.Hour.Seconds())
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"argument"}, {"-limit", "1KiB"}, {"-limit", "much"}, {"-workers", "0"}, {"-duration", "0s"},
	} {
		var errs bytes.Buffer
		require.Equal(t, exitUsage, run(context.Background(), args, io.Discard, &errs), args)
		require.NotEmpty(t, errs.String(), args)
	}
	require.Equal(t, exitOK, run(context.Background(), []string{"-h"}, io.Discard, io.Discard))
	require.Equal(t, exitFound, run(context.Background(), []string{"-device", "nothing"}, io.Discard, io.Discard))
}
