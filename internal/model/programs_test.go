package model

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// FuzzPrograms runs the program that bytes make. Its corpus is in testdata.
func FuzzPrograms(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x00 a short program, with work that lags: 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add([]byte("\xc0\x01 a program on several goroutines: 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	for _, data := range scenarios {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		res := Run(data)
		if len(res.Errs) > 0 {
			t.Log(res.Log)
		}
		for _, err := range res.Errs {
			t.Error(err)
		}
	})
}

// assemble makes the bytes of a program: those that say how it runs, and steps
// by name, each with its own bytes.
func assemble(plan string, steps ...any) []byte {
	data := []byte(plan)
	for _, x := range steps {
		switch x := x.(type) {
		case string:
			data = append(data, code(x))
		case int:
			data = append(data, byte(x))
		}
	}
	return data
}

// code returns the lowest byte that means a step.
func code(name string) byte {
	v := 0
	for _, s := range steps {
		if s.name == name {
			return byte(v)
		}
		v += s.weight
	}
	panic("no step " + name)
}

// A pool's number is 0 for the root and 8 + i for pool i; streams count from 0.
// written is what follows the size for a block that is written.
const root, written = 0, 0

// scenarios are programs that lead straight to a place where an allocator may
// be wrong.
var scenarios = map[string][]byte{
	"a block is freed while another stream reads it": assemble("\x02\x00\x00\x00\x00",
		"new stream",
		"alloc", root, 0, 0, written,
		"free on", 0, 1, 0,
		"alloc", root, 0, 0, written,
		"complete", 0, 7),
	"a block is freed on a stream that is late": assemble("\x02\x00\x00\x00\x00",
		"new stream",
		"alloc", root, 0, 0, written, "alloc", root, 0, 0, written,
		"read", 1, 1, 1,
		"free on", 0, 1, 1,
		"alloc", root, 0, 0, written,
		"complete", 0, 7),
	"a block is recorded, read and freed": assemble("\x02\x00\x00\x00\x00",
		"new stream",
		"alloc", root, 0, 0, written,
		"complete", 1, 0, // on another device than the simulated one, the stream is late now
		"read", 0, 1, 1,
		"free", 0, 0,
		"alloc", root, 0, 0, written,
		"complete", 0, 7),
	"a stream that used a block is waited for, by an event": assemble("\x00\x00\x00\x00\x00",
		"new stream", "new stream",
		"alloc", root, 0, 0, written,
		"free on", 0, 1, 0,
		"record event", 1,
		"wait for an event", 0, 2,
		"wait for a stream", 0, 2,
		"alloc", root, 0, 0, written,
		"compare", 0,
		"complete", 0, 7),
	"a pool is closed while a stream uses its block": assemble("\x00\x00\x00\x00\x00",
		"new pool", 0, 0, "new stream",
		"alloc", 9, 0, 9, written,
		"read", 0, 1, 1,
		"free", 0, 0,
		"end a pool", 9, 1,
		"complete", 0, 7),
	"what sleeps is used after it is woken": assemble("\x00\x00\x00\x00\x00",
		"alloc", root, 0, 9, written, "alloc", root, 0, 9, written, "alloc", root, 0, 0, written,
		"sleep or wake", root, 0, "free", 0, 0,
		"sleep or wake", root, 0,
		"read", 0, 0, 1, "read", 1, 0, 1,
		"sleep or wake", root, 1, "sleep or wake", root, 0,
		"read", 0, 0, 1, "read", 1, 0, 1,
		"complete", 0, 7),
	"a stream is closed while its block is live": assemble("\x00\x00\x00\x00\x00",
		"new stream", "new stream",
		"alloc", root, 1, 0, written, "alloc", root, 1, 9, written,
		"read", 0, 2, 1,
		"close a stream", 1,
		"free", 0, 0, "free", 0, 0,
		"alloc", root, 0, 0, written, "alloc", root, 0, 9, written, "new stream", "alloc", root, 1, 9, written,
		"compare", 0, "complete", 0, 7),
	"FreeLater, and another pool needs the memory": assemble("\x00\x02\x00\x00\x00",
		"new pool", 0, 0,
		"alloc", root, 0, 14, written,
		"free later", 0,
		"alloc", 9, 0, 14, written),
	"a block that was lent is freed while it is written": lent(
		"free", 1, 0,
		"alloc", root, 1, 13, written, "alloc", root, 0, 13, written,
		"compare", 0, "complete", 0, 7),
	"a stream reads a block that was lent, and both who have it are closed": lent(
		"read", 1, 0, 1, "read", 1, 1, 1,
		"close a stream", 2, "read", 0, 0, 1, "close a stream", 1,
		"free", 0, 0, "free", 0, 0,
		"alloc", root, 0, 13, written, "new stream", "alloc", root, 1, 13, written,
		"compare", 0, "complete", 0, 7),
	"a stream lends nothing while it has work": lent(
		"alloc", root, 1, 11, written, "free", 2, 0,
		"alloc", root, 2, 11, written,
		"compare", 0, "complete", 0, 7),
	"the default stream inherits a block that was lent, and reads it": lent(
		"close a stream", 2, "read", 1, 0, 1, "free", 1, 0,
		"alloc", root, 1, 13, written,
		"compare", 0, "complete", 0, 7),
	"a block that was lent sleeps": lent(
		"sleep or wake", root, 0, "free", 0, 0, "sleep or wake", root, 0,
		"read", 0, 1, 1, "free on", 0, 1, 1,
		"alloc", root, 1, 13, written, "compare", 0, "complete", 0, 7),
}

// lent returns a program of three streams, the last of which has a second block, on
// memory that the one before it lends, as both took chunks from each other.
func lent(steps ...any) []byte {
	all := []any{"new stream", "new stream"}
	for turn := range 5 {
		all = append(all, "alloc", root, 1+turn%2, 14, written, "complete", 0, 7, "free", 0, 0)
	}
	all = append(all, "alloc", root, 1, 9, written, "complete", 0, 7, "alloc", root, 2, 13, written)
	return assemble("\x02\x01\x06\x00\x00", append(all, steps...)...)
}

// corpus returns the scenarios and the inputs in testdata, by name.
func corpus(t *testing.T) (list [][]byte) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		list = append(list, scenarios[name])
	}
	files, err := filepath.Glob("testdata/fuzz/FuzzPrograms/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	slices.Sort(files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		_, line, ok := bytes.Cut(text, []byte("\n[]byte("))
		require.True(t, ok, name)
		data, err := strconv.Unquote(string(bytes.TrimSuffix(bytes.TrimSpace(line), []byte(")"))))
		require.NoError(t, err, name)
		list = append(list, []byte(data))
	}
	return list
}

// TestRandomPrograms runs new programs each time.
func TestRandomPrograms(t *testing.T) {
	seed := rand.Uint64()
	if v := os.Getenv("CUPOOL_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 0, 64)
		require.NoError(t, err)
		seed = n
	}
	t.Logf("CUPOOL_SEED=%d", seed)
	for i := range testkit.Rounds(400) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		data := Random(rng)
		if i%4 == 3 {
			data = runsBehind(rng)
		}
		res := Run(data, Options{GrowWait: time.Duration(i % 2)})
		require.Empty(t, res.Errs, "program %d: %q\n%s", i, data, res.Log)
	}
}

// runsBehind returns a program of three streams that are at work, use each other's blocks, and want
// the same memory: with a GrowWait they take what another one has passed the free of.
func runsBehind(rng *rand.Rand) []byte {
	n := func(n int) int { return rng.IntN(n) }
	steps := []any{"new stream", "new stream"}
	for range 40 + n(60) {
		switch n(12) {
		case 0, 1, 2, 3:
			steps = append(steps, "alloc", root, n(3), 9+n(6), written) // 2 to 16 MiB
		case 4:
			steps = append(steps, "read", n(256), n(3), 1)
		case 5, 6, 7:
			steps = append(steps, "free", n(256), 0)
		case 8:
			steps = append(steps, "free on", n(256), n(3), n(2))
		case 9:
			steps = append(steps, "wait for a stream", n(3), n(3))
		default:
			for s := n(3); n(4) > 0; {
				steps = append(steps, "complete", s, 0)
			}
		}
	}
	const capacity, limits = 1, 6 // 64 MiB with a soft limit of 16
	return assemble(string([]byte{byte(n(2) * 2), capacity, limits, 0, 0}), steps...)
}

// TestScenarios runs the scenarios by name.
func TestScenarios(t *testing.T) {
	for name, data := range scenarios {
		t.Run(name, func(t *testing.T) {
			res := Run(data)
			t.Log(res.Log)
			require.Empty(t, res.Errs)
		})
	}
}

// TestSameProgramSameResult runs programs on one goroutine twice.
func TestSameProgramSameResult(t *testing.T) {
	for i, data := range corpus(t) {
		if i >= testkit.Choose(1000, 40) {
			break
		}
		if len(data) > 0 && data[0] < 192 {
			require.Equal(t, Run(data).Log, Run(data).Log, "%q", data)
		}
	}
}
