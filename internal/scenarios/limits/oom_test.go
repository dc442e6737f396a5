package limits_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// The Table has what the statistics of all pools have, and what a Snapshot has.
func TestOOMTable(t *testing.T) {
	pooltest.Backings(t, 256*pooltest.MiB, func(t *testing.T, c *cupool.Pool) {
		seed := rand.Uint64()
		t.Log("seed", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "private"})
		streams := []*cupool.Stream{nil, pooltest.NewStream(t, c)}
		from := []cupool.Allocator{c, p, c.WithLabel("x"), p.WithLabel("x"), p.WithLabel("y")}
		var live []cupool.Block
		for range 2000 {
			if len(live) > 50 || len(live) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(live))
				require.NoError(t, c.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
				continue
			}
			b, err := from[r.IntN(len(from))].Alloc(1+r.Int64N(1<<(10+r.IntN(12))), streams[r.IntN(2)])
			require.NoError(t, err)
			live = append(live, b)
		}
		for _, a := range []*cupool.Pool{c, p} {
			_, err := a.Alloc(1<<40, nil)
			var e *cupool.OOMError
			require.ErrorAs(t, err, &e)
			require.Same(t, e, p.LastOOM())
			require.Equal(t, snapshot.HoldersOf(c.Snapshot()), e.Table)
			for _, of := range []*cupool.Pool{c, p} {
				var live, cached int64
				for _, h := range e.Table {
					if h.Pool == of.Name() {
						live, cached = live+h.Live, cached+h.Cached
					}
				}
				st := of.Stats()
				require.Equal(t, []int64{st.LiveBytes, st.CachedBytes}, []int64{live, cached})
			}
		}
		for _, b := range live {
			require.NoError(t, c.Free(b))
		}
	})
}

// oomRig is a simulated device of 100 MiB that a program runs out of.
type oomRig struct {
	*testing.T
	d *simdev.Device
	c *cupool.Pool
}

// alloc allocates so many MiB, and returns an out of memory.
func (x *oomRig) alloc(a cupool.Allocator, size int64, s *cupool.Stream) (cupool.Block, *cupool.OOMError) {
	b, err := a.Alloc(size*pooltest.MiB, s)
	var e *cupool.OOMError
	if err != nil {
		require.ErrorAs(x, err, &e)
	}
	return b, e
}

func (x *oomRig) mustAlloc(a cupool.Allocator, size int64) cupool.Block {
	b, e := x.alloc(a, size, nil)
	if e != nil {
		require.NoError(x, e)
	}
	return b
}

func (x *oomRig) free(blocks ...cupool.Block) {
	for _, b := range blocks {
		require.NoError(x, x.c.Free(b))
	}
}

func (x *oomRig) pool(cfg cupool.PoolConfig) *cupool.Pool { return pooltest.NewPrivate(x.T, x.c, cfg) }

// Every reason in a situation that it is named for. What is advised first makes the
// same program succeed, where it can be applied.
func TestOOMReasons(t *testing.T) {
	segments := cupool.Config{Backing: cupool.BackingSegments}
	for name, tc := range map[string]struct {
		cfg     cupool.Config
		pool    cupool.PoolConfig // of the pool that program gets
		program func(x *oomRig, p *cupool.Pool) *cupool.OOMError
		reason  string
		advice  []string

		apply func(*cupool.Config, *cupool.PoolConfig)         // the first advice
		again func(x *oomRig, p *cupool.Pool) *cupool.OOMError // the program with it, where it is no setting
	}{
		"limit": {
			cfg: cupool.Config{Limit: 50 * pooltest.MiB}, program: sixty,
			reason: "limit", advice: []string{"Limit: 60<<20, or CUPOOL_LIMIT=60M", "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Limit = 60 << 20 },
		},
		"fraction": {
			cfg: cupool.Config{Fraction: 0.5, History: &cupool.History{SampleBytes: 1}},
			program: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c.WithLabel("weights"), 40)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
			reason: "limit", advice: []string{"Fraction: 0.6, or CUPOOL_FRACTION=0.6", `free some of label "weights"`},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Fraction = 0.6 },
		},
		"limit below a fraction": {
			cfg: cupool.Config{Limit: 50 * pooltest.MiB, Fraction: 0.9}, program: sixty,
			reason: "limit", advice: []string{"Limit: 60<<20, or CUPOOL_LIMIT=60M", "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Limit = 60 << 20 },
		},
		"two limits": {
			cfg: cupool.Config{Limit: 55 * pooltest.MiB, Fraction: 0.5}, program: sixty,
			reason: "limit", advice: []string{"Limit: 60<<20, or CUPOOL_LIMIT=60M", "Fraction: 0.6, or CUPOOL_FRACTION=0.6"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Limit, cfg.Fraction = 60<<20, 0.6 },
		},
		"limit of a pool": {
			pool: cupool.PoolConfig{Limit: 30 * pooltest.MiB},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c, 40)
				x.mustAlloc(p, 20)
				_, e := x.alloc(p, 20, nil)
				return e
			},
			reason: "limit", advice: []string{"PoolConfig.Limit: 40<<20", "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(_ *cupool.Config, cfg *cupool.PoolConfig) { cfg.Limit = 40 << 20 },
		},
		"limit of a pool, beside idle memory": {
			cfg: cupool.Config{Limit: 50 * pooltest.MiB}, pool: cupool.PoolConfig{Limit: 30 * pooltest.MiB},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.free(x.mustAlloc(x.c, 45))
				_, e := x.alloc(p, 40, nil)
				return e
			},
			reason: "limit", advice: []string{"PoolConfig.Limit: 40<<20", "smaller batches"},
			apply: func(_ *cupool.Config, cfg *cupool.PoolConfig) { cfg.Limit = 40 << 20 },
		},
		"rest of a pool's limit, beside idle memory": {
			cfg: cupool.Config{Limit: 50 * pooltest.MiB}, pool: cupool.PoolConfig{Limit: 30 * pooltest.MiB},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(p, 20)
				x.free(x.mustAlloc(x.c, 28))
				_, e := x.alloc(p, 20, nil)
				return e
			},
			reason: "limit", advice: []string{"PoolConfig.Limit: 40<<20", "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(_ *cupool.Config, cfg *cupool.PoolConfig) { cfg.Limit = 40 << 20 },
		},
		"limits of a pool and of all": {
			cfg: cupool.Config{Limit: 50 * pooltest.MiB}, pool: cupool.PoolConfig{Limit: 30 * pooltest.MiB},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c, 40)
				_, e := x.alloc(p, 40, nil)
				return e
			},
			reason: "limit", advice: []string{"PoolConfig.Limit: 40<<20", "Limit: 80<<20, or CUPOOL_LIMIT=80M"},
			apply: func(cfg *cupool.Config, pool *cupool.PoolConfig) { cfg.Limit, pool.Limit = 80<<20, 40<<20 },
		},
		"fragmentation of segments": {
			cfg: segments, program: pieces,
			reason: "fragmentation", advice: []string{"Backing: cupool.BackingVMM", "MaxSplit: 40<<20"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Backing = cupool.BackingVMM },
		},
		"the second advice": {
			cfg: segments, program: pieces,
			reason: "fragmentation", advice: []string{"Backing: cupool.BackingVMM", "MaxSplit: 40<<20"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.MaxSplit = 40 << 20 },
		},
		"small blocks that pin segments": {
			cfg: segments, program: pinned,
			reason: "fragmentation", advice: []string{"Backing: cupool.BackingVMM", "MaxSplit: 30<<20"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Backing = cupool.BackingVMM },
		},
		"fragmentation below a limit": {
			cfg: cupool.Config{Limit: 56 * pooltest.MiB, MaxSplit: 60 * pooltest.MiB}, program: pieces,
			reason: "fragmentation", advice: []string{"Backing: cupool.BackingVMM with MaxSplit: 0", "Limit: 80<<20, or CUPOOL_LIMIT=80M"},
			apply: func(cfg *cupool.Config, _ *cupool.PoolConfig) { cfg.Backing, cfg.MaxSplit = cupool.BackingVMM, 0 },
		},
		"fragmentation of virtual memory": {
			cfg: cupool.Config{Backing: cupool.BackingVMM, MagazineBytes: -1},
			program: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				return speckled(x, x.c)
			},
			reason: "fragmentation", advice: []string{"NewPool for blocks that live long", "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(*cupool.Config, *cupool.PoolConfig) {},
			again: func(x *oomRig, p *cupool.Pool) *cupool.OOMError { return speckled(x, p) },
		},
		"another process": {
			program: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				_, err := x.d.MemAlloc(60 * pooltest.MiB)
				require.NoError(x, err)
				x.mustAlloc(x.c, 30)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
			reason: "another process", advice: []string{"end the other process (nvidia-smi lists it)", "Fraction or Limit in the other process"},
			again: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c, 30)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
		},
		"pending frees": {
			cfg: cupool.Config{WaitTimeout: 5 * time.Millisecond},
			program: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				_, e := x.alloc(x.c, 80, busy(x))
				return e
			},
			reason: "pending frees", advice: []string{"Stream.Sync before the allocation", "a WaitTimeout above 5ms"},
			again: func(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
				s := busy(x)
				x.d.CompleteAll()
				require.NoError(x, x.c.Sync())
				_, e := x.alloc(x.c, 80, s)
				return e
			},
		},
		"other pools": {
			pool: cupool.PoolConfig{Name: "kept", Isolated: true},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.free(x.mustAlloc(p, 60))
				_, e := x.alloc(x.c, 60, nil)
				return e
			},
			reason: "other pools", advice: []string{`EmptyCache of pool "kept"`, `PoolConfig.Isolated: false for pool "kept"`},
			again: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.free(x.mustAlloc(p, 60))
				require.NoError(x, p.EmptyCache())
				_, e := x.alloc(x.c, 60, nil)
				return e
			},
		},
		"pools in pieces": {
			cfg: segments, pool: cupool.PoolConfig{Name: "lender"},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.free(x.mustAlloc(p, 60))
				x.mustAlloc(p, 2)
				x.mustAlloc(p, 10)
				_, e := x.alloc(x.c, 45, nil)
				return e
			},
			reason: "other pools", advice: []string{`PoolConfig.UseOnOOM: true for pool "lender"`, "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(_ *cupool.Config, cfg *cupool.PoolConfig) { cfg.UseOnOOM = true },
		},
		"pools that hold most": {
			pool: cupool.PoolConfig{Name: "greedy"},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(p, 70)
				x.mustAlloc(x.c, 20)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
			reason: "other pools", advice: []string{`a PoolConfig.Limit for pool "greedy"`, "OnOutOfMemory: a function that frees what can be made again"},
			apply: func(_ *cupool.Config, cfg *cupool.PoolConfig) {},
			again: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(p, 50)
				x.mustAlloc(x.c, 20)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
		},
		"too much": {
			cfg: cupool.Config{History: &cupool.History{SampleBytes: 1}, OnOutOfMemory: func(int64) bool { return false }},
			program: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c, 90)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
			reason: "too much", advice: []string{"smaller batches"},
			again: func(x *oomRig, p *cupool.Pool) *cupool.OOMError {
				x.mustAlloc(x.c, 70)
				_, e := x.alloc(x.c, 20, nil)
				return e
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(program func(*oomRig, *cupool.Pool) *cupool.OOMError, change func(*cupool.Config, *cupool.PoolConfig)) *cupool.OOMError {
				cfg, pool := tc.cfg, tc.pool
				if change != nil {
					change(&cfg, &pool)
				}
				x := &oomRig{T: t, d: simdev.New(simdev.Config{Capacity: 100 * pooltest.MiB, ManualEvents: true, IdleEvents: true})}
				cfg.Driver = x.d
				var err error
				x.c, err = cupool.New(cfg)
				require.NoError(t, err)
				e := program(x, x.pool(pool))
				x.d.CompleteAll()
				return e
			}
			e := run(tc.program, nil)
			require.NotNil(t, e)
			require.Equal(t, tc.reason, e.Reason, "%v", e)
			require.Equal(t, tc.advice, e.Settings, "%v", e)
			if tc.reason == "too much" {
				require.Contains(t, e.Error(), "\n\tcause: the program holds 90 MiB of 100 MiB and asks for 20 MiB more\n")
			} else {
				require.Contains(t, e.Error(), "\n\tcause: "+tc.reason+"\n")
			}
			if tc.again == nil {
				tc.again = tc.program
			}
			if e := run(tc.again, tc.apply); e != nil {
				require.NoError(t, e)
			}
		})
	}
}

// A program that ran into its limit goes on with the one that the error advises, as the
// environment has it. In virtual memory that is no more than what was missing.
func TestAdvisedLimit(t *testing.T) {
	setting := regexp.MustCompile(`CUPOOL_LIMIT=(\S+)`)
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(backing, seed), func(t *testing.T) {
				run := func(limit string) (steps int, e *cupool.OOMError) {
					t.Setenv("CUPOOL_LIMIT", limit)
					x := &oomRig{T: t, d: simdev.New(simdev.Config{Capacity: 1000 * pooltest.MiB})}
					var err error
					x.c, err = cupool.New(cupool.Config{Driver: x.d, Backing: backing})
					require.NoError(t, err)
					r := rand.New(rand.NewPCG(seed, 0))
					for ; e == nil; steps++ {
						var b cupool.Block
						b, e = x.alloc(x.c, 1+r.Int64N(4), nil)
						if e == nil && r.IntN(3) == 0 {
							x.free(b)
						}
					}
					return steps, e
				}
				steps, e := run("30MiB")
				advised := setting.FindStringSubmatch(strings.Join(e.Settings, "\n"))
				require.NotNil(t, advised, "%v", e)
				further, again := run(advised[1])
				require.Greater(t, further, steps, "%v", again)
				if backing == cupool.BackingVMM {
					require.LessOrEqual(t, again.Limit, e.Reserved+e.Rounded+2*pooltest.MiB)
				}
			})
		}
	}
}

// hog fills a device with blocks of one line, of so many MiB.
func (x *oomRig) hog(a cupool.Allocator, size int64) *cupool.OOMError {
	for {
		if _, e := x.alloc(a, size, nil); e != nil {
			return e
		}
	}
}

// One line holds nearly all of a device: that is the cause, whatever lies free beside its
// blocks, and the line is named where it was recorded, else its label, else how to record it.
func TestOOMNamesHolders(t *testing.T) {
	const (
		line    = `allocated at limits_test\.\(\*oomRig\)\.alloc \(oom_test\.go:\d+\), called by limits_test\.\(\*oomRig\)\.hog \(oom_test\.go:\d+\), limits_test\.TestOOMNamesHolders`
		unknown = "to see which lines hold memory, set Config.History or call Pool.StartHistory"
	)
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		for name, tc := range map[string]struct {
			history *cupool.History
			label   string
			held    string
			unknown bool
		}{
			"nothing": {held: ", not recorded where\n", unknown: true},
			"a label": {label: "batches", held: ", for batches, not recorded where\n"},
			"all":     {history: &cupool.History{SampleBytes: 1}, held: ", " + line},
			"samples": {history: &cupool.History{SampleBytes: 64 << 10}, held: ", " + line},
			"both":    {history: &cupool.History{SampleBytes: 64 << 10}, label: "batches", held: ", for batches, " + line},
		} {
			t.Run(backing.String()+"/"+name, func(t *testing.T) {
				x := &oomRig{T: t, d: simdev.New(simdev.Config{Capacity: 100 * pooltest.MiB})}
				var err error
				x.c, err = cupool.New(cupool.Config{Driver: x.d, Backing: backing, History: tc.history})
				require.NoError(t, err)
				var a cupool.Allocator = x.c
				if tc.label != "" {
					a = x.c.WithLabel(tc.label)
				}
				e := x.hog(a, 3)
				require.Positive(t, e.Cached, "what lies between the blocks")
				require.Equal(t, "too much", e.Reason, "%v", e)
				require.Regexp(t, `\n\tcause: the program holds 9\d MiB of 100 MiB and asks for 3 MiB more\n`, e.Error())
				require.Regexp(t, `\n\theld: 3\d blocks, 9[\d.]+ MiB`+tc.held, e.Error())
				require.Equal(t, tc.unknown, strings.Contains(e.Error(), unknown))
				require.InDelta(t, e.Live, e.Lines[0].Bytes, float64(e.Live)/20)
				require.Equal(t, tc.history != nil, len(e.Lines[0].Stack) > 0)
				require.Equal(t, tc.label, e.Lines[0].Label)
			})
		}
	}
}

// The lines of all pools count, the three largest are named, and what a history that began
// late did not record stands apart.
func TestOOMLines(t *testing.T) {
	x := &oomRig{T: t, d: simdev.New(simdev.Config{Capacity: 100 * pooltest.MiB})}
	var err error
	x.c, err = cupool.New(cupool.Config{Driver: x.d})
	require.NoError(t, err)
	x.mustAlloc(x.c, 20)
	require.NoError(t, x.c.StartHistory(cupool.History{SampleBytes: 1}))
	p := x.pool(cupool.PoolConfig{Name: "private"})
	for range 5 {
		x.mustAlloc(p, 2)
	}
	x.mustAlloc(x.c, 4)
	x.free(x.mustAlloc(x.c, 30))
	x.mustAlloc(x.c.WithLabel("weights"), 2)
	_, e := x.alloc(x.c, 200, nil)
	require.Equal(t, snapshot.LinesOf(x.c.Snapshot())[:3], e.Lines)
	require.EqualValues(t, []int64{20 * pooltest.MiB, 10 * pooltest.MiB}, []int64{e.Lines[0].Bytes, e.Lines[1].Bytes})
	require.Empty(t, e.Lines[0].Stack)
	require.Regexp(t, `\n\theld: 1 block, 20 MiB, not recorded where\n\theld: 5 blocks, 10 MiB, in pool "private", allocated at `, e.Error())
}

// The first out of memory stays with its picture, however many follow.
func TestFirstOOM(t *testing.T) {
	c, _ := pooltest.NewParallel(t, 64*pooltest.MiB)
	require.Nil(t, c.FirstOOM())
	b := pooltest.Alloc(t, c, 30*pooltest.MiB, nil)
	_, err := c.Alloc(40*pooltest.MiB, nil)
	var first *cupool.OOMError
	require.ErrorAs(t, err, &first)
	require.NoError(t, c.Free(b))
	for range 100 {
		_, err := c.Alloc(128*pooltest.MiB, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	require.Same(t, first, c.FirstOOM())
	require.EqualValues(t, 30*pooltest.MiB, c.FirstOOM().Snapshot.Segments[0].Allocated)
	require.NotSame(t, first, c.LastOOM())
	require.NoError(t, c.Close())
	require.Same(t, first, c.FirstOOM())
}

// The first out of memory is in files when the allocation returns, with all pools, whichever
// failed and however many do at once.
func TestOOMDump(t *testing.T) {
	for name, open := range map[string]func(*testing.T, string, *slog.Logger) *cupool.Pool{
		"config": func(t *testing.T, dir string, log *slog.Logger) *cupool.Pool {
			c, _ := pooltest.NewParallel(t, 64*pooltest.MiB, func(cfg *cupool.Config) { cfg.OOMDump, cfg.Logger = dir, log })
			return c
		},
		"environment": func(t *testing.T, dir string, log *slog.Logger) *cupool.Pool {
			t.Setenv("CUPOOL_OOM_DUMP", dir)
			c, err := cupool.New(cupool.Config{Logger: log, Limit: 64 * pooltest.MiB})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := filepath.Join(t.TempDir(), "dumps"), bytes.Buffer{}
			c := open(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "private"})
			one, two := pooltest.Alloc(t, c, 20*pooltest.MiB, nil), pooltest.Alloc(t, p, 10*pooltest.MiB, nil)
			require.NoDirExists(t, dir)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if _, err := p.Alloc(128*pooltest.MiB, nil); err == nil {
						t.Error("there is more than expected")
					}
					files, err := filepath.Glob(filepath.Join(dir, "cupool-oom-*"))
					if err != nil || len(files) != 3 {
						t.Error(files, err)
					}
				})
			}
			wg.Wait()
			text, err := os.ReadFile(only(t, dir, "*.txt"))
			require.NoError(t, err)
			require.Contains(t, string(text), "\ncupool: out of memory on ")
			require.Contains(t, string(text), ", pool private\n")
			f, err := os.Open(only(t, dir, "*.pickle"))
			require.NoError(t, err)
			defer f.Close()
			list, err := snapshot.Read(f)
			require.NoError(t, err)
			live := map[string]int64{}
			for _, s := range list {
				for _, s := range s.Flat() {
					for _, seg := range s.Segments {
						live[s.Pool] += seg.Allocated
					}
				}
			}
			require.Equal(t, map[string]int64{"": 20 * pooltest.MiB, "private": 10 * pooltest.MiB}, live)
			require.Equal(t, 1, strings.Count(log.String(), "an out of memory dump is written"), log.String())
			require.NoError(t, c.Free(one))
			require.NoError(t, p.Free(two))
		})
	}
}

// only returns the one file of a folder that a pattern fits.
func only(t *testing.T, dir, pattern string) string {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// A folder that cannot be written to changes nothing but the log.
func TestOOMDumpFails(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "file"), bytes.Buffer{}
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	c, _ := pooltest.NewParallel(t, 64*pooltest.MiB, func(cfg *cupool.Config) {
		cfg.OOMDump, cfg.Logger = file, slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 2 {
		_, err := c.Alloc(128*pooltest.MiB, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), file)
}

// sixty asks for 60 MiB in two blocks.
func sixty(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
	x.mustAlloc(x.c, 40)
	_, e := x.alloc(x.c, 20, nil)
	return e
}

// pieces asks for 40 MiB when 24 of the 40 that were freed are left.
func pieces(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
	x.free(x.mustAlloc(x.c, 40))
	x.mustAlloc(x.c, 16)
	if x.c.Stats().Limit == 0 {
		x.mustAlloc(x.c, 30)
	}
	_, e := x.alloc(x.c, 40, nil)
	return e
}

// pinned leaves 2 MiB in each segment of 20, and asks for 30 MiB.
func pinned(x *oomRig, _ *cupool.Pool) *cupool.OOMError {
	var blocks []cupool.Block
	for range 50 {
		blocks = append(blocks, x.mustAlloc(x.c, 2))
	}
	for i, b := range blocks {
		if i%10 != 5 {
			x.free(b)
		}
	}
	_, e := x.alloc(x.c, 30, nil)
	return e
}

// speckled leaves a block of long in every chunk, and asks for 60 MiB.
func speckled(x *oomRig, long *cupool.Pool) *cupool.OOMError {
	var blocks []cupool.Block
	for range 40 {
		x.mustAlloc(long, 1)
		blocks = append(blocks, x.mustAlloc(x.c, 1))
	}
	x.free(blocks...)
	_, e := x.alloc(x.c, 60, nil)
	return e
}

// busy returns a stream with 60 MiB that were freed while another one uses them.
func busy(x *oomRig) *cupool.Stream {
	s, u := pooltest.NewStream(x.T, x.c), pooltest.NewStream(x.T, x.c)
	b, e := x.alloc(x.c, 60, s)
	require.Nil(x, e)
	require.NoError(x, u.Launch(func() {}))
	require.NoError(x, x.c.FreeOn(b, u))
	return s
}

// Several goroutines that run out of memory while others allocate get an error each.
func TestOOMsInGoroutines(t *testing.T) {
	c, _ := pooltest.NewParallel(t, 64*pooltest.MiB, pooltest.WithMagazines)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	require.Nil(t, c.LastOOM())
	var wg sync.WaitGroup
	for i := range 8 {
		a := []*cupool.Pool{c, p}[i%2]
		wg.Go(func() {
			for range 50 {
				b, err := a.Alloc(1000, nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := a.Alloc(128*pooltest.MiB, nil); err == nil || err.Error() == "" || c.LastOOM() == nil {
					t.Error(err)
				}
				if err := a.Free(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 400, c.Stats().OOMs+p.Stats().OOMs)
}
