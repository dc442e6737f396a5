package testkit

import "math/rand/v2"

// Second returns the error of a call with two results.
func Second[T any](_ T, err error) error { return err }

// Must returns v, and panics with err where that is not nil. It is for goroutines,
// which cannot end a test, and for code without one.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Pattern returns n bytes that differ from their neighbours, always the same.
func Pattern(n int64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
