package testkit

import (
	"runtime"
	"testing"
)

// Allocated returns how many bytes f allocates, whether or not they stay in
// use. It counts those of all goroutines.
func Allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// RequireAllocates fails the test when f allocates more than fixed bytes and factor more
// for each of the n bytes of its input. f is called again where it does, as
// other goroutines may have allocated meanwhile.
func RequireAllocates(t testing.TB, fixed, factor int64, n int, f func()) {
	t.Helper()
	most := fixed + factor*int64(n)
	if Race {
		most *= 4 // a sync.Pool forgets at random then
	}
	var got int64
	for range 3 {
		if got = Allocated(f); got <= most {
			return
		}
	}
	t.Fatalf("an input of %d bytes made it allocate %d bytes, more than %d + %d for each", n, got, fixed, factor)
}
