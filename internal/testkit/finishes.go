package testkit

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// Patience is how long to wait for what comes in milliseconds, unless it hangs or
// others need the processors.
const Patience = 2 * time.Minute

// Finishes fails the test when f takes longer than anything here should.
func Finishes(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(Patience):
		t.Fatalf("%s does not return", what)
	}
}

// AwaitLock returns when a goroutine waits for a sync.Mutex in a function of a name, or in
// one that it calls.
func AwaitLock(t testing.TB, function string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, of := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			state, calls, _ := strings.Cut(of, "\n")
			if strings.Contains(state, "[sync.Mutex.Lock") && strings.Contains(calls, function+"(") {
				return
			}
		}
	}
	t.Fatalf("nobody waits for a lock in %s", function)
}
