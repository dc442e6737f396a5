// Package testkit has what the tests of many packages share and what imports
// none of them: how much to do, random numbers, bounds on what a parser may
// allocate, tests in processes of their own. The packages below it need more:
// pooltest a pool, enginetest a tensor engine, gputest and nvtxtest a GPU.
//
// Tests do a quick form of everything by default, so that "go test ./..." ends
// soon, and all of it with CUPOOL_TEST=long in the environment, which CI sets.
// Both forms run the same tests on the same devices. The long form takes more
// steps, seeds, failing calls and configurations.
package testkit

import (
	"os"
	"testing"
)

// Long reports whether the tests run in their long form: CUPOOL_TEST=long is
// set and the flag -short is not.
func Long() bool { return os.Getenv("CUPOOL_TEST") == "long" && !testing.Short() }

// Rounds returns how often to do what the long form does n times: n there, an
// eighth of it, but at least once, in the quick form.
func Rounds(n int) int { return Choose(n, max(n/8, 1)) }

// Choose returns the value for the form that runs.
func Choose[T any](long, quick T) T {
	if Long() {
		return long
	}
	return quick
}
