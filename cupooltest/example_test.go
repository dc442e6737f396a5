package cupooltest_test

import (
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cupooltest"
)

// A test of a program that uses device memory fails when the program keeps any.
// NoLeaks stands behind the Cleanup that closes the allocator.
func ExampleNoLeaks() {
	_ = func(t *testing.T) { // func TestProgram(t *testing.T)
		pool, err := cupool.New(cupool.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		cupooltest.NoLeaks(t, pool)

		b, err := pool.Alloc(1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.Free(b); err != nil {
			t.Fatal(err)
		}
	}
}
