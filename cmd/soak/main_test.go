package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/model"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// small are the flags of a run in a test.
func small(t *testing.T) []string {
	return []string{
		"-device", "host:512MiB", "-limit", "192MiB", "-workers", "6",
		"-duration", testkit.Choose(8*time.Second, 2*time.Second).String(),
		"-out", filepath.Join(t.TempDir(), "samples.jsonl"),
	}
}

// Sound allocators pass on every device, and the samples are in the file. A run this
// short does not say what stays flat.
func TestSoak(t *testing.T) {
	t.Run("host", func(t *testing.T) { testSoak(t) })
	t.Run("cuda", func(t *testing.T) {
		gputest.Need(t)
		testSoak(t, "-device", "cuda", "-duration", "12s") // the stand-in is slow
	})
}

// A run whose file cannot be written fails, and says what came of it.
func TestUnwritten(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := append(small(t), "-duration", "300ms", "-out", filepath.Join(t.TempDir(), "no", "file"))
	require.Equal(t, exitFound, run(t.Context(), args, &stdout, &stderr))
	require.Contains(t, stderr.String(), "the samples are lost: ")
	require.Contains(t, stdout.String(), `"programs":`)
}

// soakUntil runs for longer each time, until that was enough, as few programs run and few
// samples are taken on a loaded machine.
func soakUntil(t *testing.T, o options, enough func(summary) bool) summary {
	t.Helper()
	for ; ; o.duration *= 2 {
		sum, err := soakFor(context.Background(), o, io.Discard)
		require.NoError(t, err)
		if enough(sum) || o.duration > time.Minute {
			return sum
		}
	}
}

func testSoak(t *testing.T, args ...string) {
	o, err := parse(append(small(t), args...), io.Discard)
	require.NoError(t, err)
	sum := soakUntil(t, o, func(sum summary) bool {
		most, _ := sampled(t, o.out)
		return !sum.OK || sum.Programs > sum.Allocators && sum.Allocators > int64(o.workers) && sum.Trainings > 0 && most.Reserved > 0 && most.Streams > 0
	})
	require.True(t, sum.OK, "%s\nseed %d", sum.Found, sum.Seed)
	require.False(t, sum.Judged)
	require.Greater(t, sum.Programs, sum.Allocators, "programs share allocators")
	require.Greater(t, sum.Allocators, int64(o.workers), "and some are replaced")
	require.NotZero(t, sum.Trainings)
	most, n := sampled(t, o.out)
	require.Equal(t, sum.Samples, n)
	require.NotZero(t, most.Programs)
	require.NotZero(t, most.Reserved)
	require.NotZero(t, most.Streams)
}

// sampled returns the most that the samples in a file say, and how many they are. A single
// one may be of a moment between programs.
func sampled(t *testing.T, file string) (most sample, n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var s sample
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		most.Programs, most.Reserved, most.Streams = max(most.Programs, s.Programs), max(most.Reserved, s.Reserved), max(most.Streams, s.Streams)
		n++
	}
	return most, n
}

// forgets is an allocator that frees nothing, or knows no other stream's use. It takes
// wrong calls, too, which the model calls errors.
type forgets struct {
	model.Tested
	frees bool
}

func (x forgets) Free(b cupool.Block) error {
	if x.frees {
		return nil
	}
	return x.Tested.Free(b)
}

func (x forgets) RecordStream(b cupool.Block, s *cupool.Stream) error {
	if !x.frees {
		return nil
	}
	return x.Tested.RecordStream(b, s)
}

// What is broken on purpose is found, and ends the run: by the model, in the samples, or
// at the end.
func TestFinds(t *testing.T) {
	for name, c := range map[string]struct {
		breaks  func(model.Tested) model.Tested
		between func(cupool.Driver) error
		found   string
	}{
		"blocks are not freed":     {breaks: func(x model.Tested) model.Tested { return forgets{x, true} }, found: "books: |errors: "},
		"streams are not recorded": {breaks: func(x model.Tested) model.Tested { return forgets{x, false} }, found: "early reuse: |contents: |errors: |books: .* pending"},
		"events are not closed": {
			between: func(d cupool.Driver) (err error) {
				for range 32 {
					_, err = d.NewEvent()
				}
				return err
			},
			found: "the device's events grew",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(small(t), io.Discard)
			require.NoError(t, err)
			o.breaks, o.between = c.breaks, c.between
			if c.breaks != nil { // which ends the run; the samples are of all of it
				o.duration = time.Minute
			}
			says := func(sum summary) string { return strings.Join(append(slices.Clone(sum.Found), sum.Grown...), "\n") }
			found := regexp.MustCompile(c.found)
			sum := soakUntil(t, o, func(sum summary) bool { return c.breaks != nil || found.MatchString(says(sum)) })
			require.False(t, sum.OK)
			require.Regexp(t, found, says(sum), "seed %d", sum.Seed)
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
	require.Equal(t, exitOK, status, errs.String())
	require.Less(t, sum.Seconds, time.Hour.Seconds())
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"argument"}, {"-limit", "1KiB"}, {"-limit", "much"}, {"-workers", "0"}, {"-workers", "1099511627776"}, {"-duration", "0s"},
	} {
		var errs bytes.Buffer
		require.Equal(t, exitUsage, run(context.Background(), args, io.Discard, &errs), args)
		require.NotEmpty(t, errs.String(), args)
	}
	require.Equal(t, exitOK, run(context.Background(), []string{"-h"}, io.Discard, io.Discard))
	require.Equal(t, exitFound, run(context.Background(), []string{"-device", "nothing"}, io.Discard, io.Discard))
}
