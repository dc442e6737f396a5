package gcpressure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When the collector is due, by the share of memory in use, the part of the
// time that it took before, and what came of it.
func TestDue(t *testing.T) {
	const size = 1000
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		used  int64
		took  time.Duration // of the last run; 0: there was none
		since time.Duration // its begin
		freed int64
		want  bool
	}{
		"first":                          {used: 750, want: true},
		"no pressure":                    {used: 749},
		"rare enough":                    {used: 760, took: time.Millisecond, since: 20 * time.Millisecond, want: true},
		"too often":                      {used: 760, took: time.Millisecond, since: 19 * time.Millisecond},
		"worth it":                       {used: 760, took: time.Millisecond, since: 19 * time.Millisecond, freed: 101, want: true},
		"too often, though worth it":     {used: 760, took: time.Millisecond, since: 9 * time.Millisecond, freed: 101},
		"nearly full":                    {used: 901, took: time.Millisecond, since: 10 * time.Millisecond, want: true},
		"as good as full":                {used: 951, took: time.Millisecond, since: 5 * time.Millisecond, want: true},
		"as good as full, but too often": {used: 951, took: time.Millisecond, since: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Pressure{size: size}
			if c.took > 0 {
				p.note(start, c.took, c.freed)
			}
			require.Equal(t, c.want, p.due(start.Add(c.since), c.used))
		})
	}
}

// The time of a run is smoothed over the last ones.
func TestNote(t *testing.T) {
	p := &Pressure{}
	p.note(time.Unix(1, 0), 4*time.Second, 5)
	require.Equal(t, 4*time.Second, p.lastTook)
	p.note(time.Unix(2, 0), 8*time.Second, 6)
	require.Equal(t, 5*time.Second, p.lastTook)
	require.Equal(t, int64(6), p.lastFree)
}

// Runs for requests that are refused anyway: some are free, and then they take
// a tenth of the time, until one is of use.
func TestHopeful(t *testing.T) {
	const took = 4 * time.Millisecond
	p, now := &Pressure{}, time.Unix(1000, 0)
	runs := func(requests int, every time.Duration) (n int) {
		for range requests {
			if now = now.Add(every); p.hopeful(now) {
				p.noteRefused(now, took, 0)
				n++
			}
		}
		return n
	}
	require.Equal(t, vainRuns, runs(1000, time.Microsecond), "a storm of requests")
	require.Equal(t, 1000, runs(1000, 10*took), "so seldom that it takes a tenth")
	require.InDelta(t, 100, runs(1000, took), 1, "in a tenth of the time")
	now = now.Add(time.Hour)
	require.Equal(t, vainRuns, runs(1000, time.Microsecond), "a storm after a rest")
	p.noteRefused(now, took, 1)
	require.Equal(t, vainRuns, runs(1000, time.Microsecond), "a run gave something back")
	p.On.Store(true)
	require.Equal(t, 1000, runs(1000, time.Microsecond), "tensors have lifetimes")
}
