package lock

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Everybody gets in, and never two at once, whether the holder is quick,
// gives up its processor, or sleeps for longer than waiters spin.
func TestMutex(t *testing.T) {
	for name, hold := range map[string]func(){
		"quick":  func() {},
		"yields": runtime.Gosched,
		"sleeps": func() { time.Sleep(300 * time.Microsecond) },
	} {
		t.Run(name, func(t *testing.T) {
			const goroutines, rounds = 8, 100
			var m Mutex
			var wg sync.WaitGroup
			inside, entered := 0, 0 // guarded by m
			for range goroutines {
				wg.Go(func() {
					for range rounds {
						m.Lock()
						inside++
						if inside != 1 {
							t.Errorf("%d inside", inside)
						}
						hold()
						inside--
						entered++
						m.Unlock()
					}
				})
			}
			wg.Wait()
			require.Equal(t, goroutines*rounds, entered)
		})
	}
}

// In a synctest bubble time stands still while a goroutine waits for a
// sync.Mutex: who has that one and waits for ours must not need the time.
func TestMutexInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mutex
		var outer sync.Mutex
		m.Lock()
		go func() {
			outer.Lock()
			defer outer.Unlock()
			m.Lock()
			//lint:ignore SA2001 to have waited is all
			m.Unlock()
		}()
		for m.queue.TryLock() { // until the goroutine is first in line
			m.queue.Unlock()
			runtime.Gosched()
		}
		for range 10 * tries { // until it sleeps
			runtime.Gosched()
		}
		m.Unlock()
		outer.Lock()
		//lint:ignore SA2001 to have waited is all
		outer.Unlock()
	})
}

func BenchmarkPair(b *testing.B) {
	var ours Mutex
	var std sync.Mutex
	for _, v := range []struct {
		name string
		l    sync.Locker
	}{{"lock", &ours}, {"sync", &std}} {
		b.Run(v.name, func(b *testing.B) {
			for b.Loop() {
				v.l.Lock()
				//lint:ignore SA2001 the pair alone is measured
				v.l.Unlock()
			}
		})
		b.Run(v.name+"/contended", func(b *testing.B) {
			n := 0
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					v.l.Lock()
					for range 20 {
						n++
					}
					v.l.Unlock()
				}
			})
		})
	}
}
