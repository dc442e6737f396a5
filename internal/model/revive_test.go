package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// What a Close has ended that fails is not live again while a Reset or another Close may end
// it: they do, or give it back.
func TestReviveBesideOthers(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(w *world, p *Pool) }{
		"reset": {func(_ *world, p *Pool) { p.resetting = true }, func(w *world, p *Pool) {
			p.resetting = false
			w.revive(p, p.gone)
		}},
		"close": {func(_ *world, p *Pool) { p.closes++ }, func(w *world, p *Pool) {
			p.closes--
			w.reopened(p, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDevice(simdev.New(simdev.Config{}))
			w := &world{Model: newModel(d, true)}
			def := &Stream{s: d.stream(0)}
			pool, err := cupool.New(cupool.Config{Driver: d})
			require.NoError(t, err)
			p := &Pool{Tested: caching{pool}, c: pool}
			b := &Block{pool: p, on: def, pieces: []piece{{}}}
			w.streams, w.live = []*Stream{def}, []*Block{b}
			p.state, p.closes = closing, 1
			gone := w.ends(p, everything)
			require.Empty(t, w.live)
			c.begin(w, p)
			p.closes--
			w.reopened(p, gone)
			require.Empty(t, w.live, "the other call may end it yet")
			c.end(w, p)
			require.Equal(t, []*Block{b}, w.live)
			require.Empty(t, w.failures())
		})
	}
}

// What an arena handed out while its pool was being closed ends with the arena, also if the
// Close fails.
func TestReviveAfterGuest(t *testing.T) {
	d := NewDevice(simdev.New(simdev.Config{}))
	w := &world{Model: newModel(d, false)}
	def := &Stream{s: d.stream(0)}
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	p := &Pool{Tested: caching{pool}, c: pool}
	g := &guest{pool: p}
	b := &Block{pool: p, on: def, of: g}
	w.streams = []*Stream{def}
	p.state = closing
	w.born(b)
	require.Len(t, w.ends(p, func(b *Block) bool { return b.of == g }), 1)
	w.reopened(p, nil)
	require.Empty(t, w.live)
	require.Empty(t, w.failures())
}

// A Reset that fails since another goroutine has closed the pool gives no block back.
func TestReviveClosed(t *testing.T) {
	d := NewDevice(simdev.New(simdev.Config{}))
	w := &world{Model: newModel(d, false)}
	def := &Stream{s: d.stream(0)}
	p := &Pool{}
	w.streams, w.live = []*Stream{def}, []*Block{{pool: p, on: def}}
	list := w.ends(p, everything)
	require.Len(t, list, 1)
	p.state = closed
	w.revive(p, list)
	require.Empty(t, w.live)
}
