package testkit

import (
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
