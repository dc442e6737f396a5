package testkit

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// Choices are those of a random program. Bytes make them, so that a shorter
// program is one of fewer bytes: what is chosen behind their end is 0.
type Choices struct{ bytes []byte }

// ChoicesOf returns the choices that bytes make.
func ChoicesOf(program []byte) Choices { return Choices{program} }

// Rest returns the bytes that are left.
func (c *Choices) Rest() []byte { return c.bytes }

// N returns a number below n, which is 256 at most.
func (c *Choices) N(n int) int {
	if len(c.bytes) == 0 {
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return int(b) % n
}

// Chance is true once in n times.
func (c *Choices) Chance(n int) bool { return c.N(n) == n-1 }

// Done reports whether all bytes were used.
func (c *Choices) Done() bool { return len(c.bytes) == 0 }

// Programs runs random programs of up to size bytes: n of them (Rounds), the same ones each
// time, or new ones for as long as CUPOOL_RANDOM says, a duration. With bytes in
// CUPOOL_PROGRAM it runs that program alone. run returns the program's text and what is
// wrong. What fails is made shorter and printed, with the command that runs it again.
func Programs(t *testing.T, n, size int, run func(c *Choices) (text string, err error)) {
	t.Helper()
	try := func(program []byte) (string, error) { return run(&Choices{bytes: program}) }
	if v := os.Getenv("CUPOOL_PROGRAM"); v != "" {
		program, err := hex.DecodeString(v)
		if err != nil {
			t.Fatalf("CUPOOL_PROGRAM=%q: %v", v, err)
		}
		text, err := try(program)
		t.Logf("%s", text)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	seed, start, limit := uint64(1), time.Now(), time.Duration(0)
	if v := os.Getenv("CUPOOL_RANDOM"); v != "" {
		var err error
		if limit, err = time.ParseDuration(v); err != nil {
			t.Fatalf("CUPOOL_RANDOM=%q: %v", v, err)
		}
		seed = Seed(t)
	}
	count := Rounds(n)
	for i := 0; i < count || time.Since(start) < limit; i++ {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		program := make([]byte, 1+r.IntN(size))
		for j := range program {
			program[j] = byte(r.Uint32())
		}
		if _, err := try(program); err != nil {
			program = shorter(program, func(p []byte) bool { return Second(try(p)) != nil })
			text, err := try(program)
			t.Fatalf("program %d fails: %v\n%s\nto run it again: CUPOOL_PROGRAM=%x go test -count 1 -run '^%s$' %s", i, err, text, program, t.Name(), packageName())
		}
	}
	if limit > 0 {
		t.Logf("ran for %v", time.Since(start).Round(time.Second))
	}
}

// packageName returns the name of the package that is tested.
func packageName() string {
	b, _ := debug.ReadBuildInfo()
	if b == nil {
		return "."
	}
	return strings.TrimSuffix(b.Path, ".test")
}

// shorter returns a program that fails too, of no more bytes, with as many of them 0 as a
// short search finds.
func shorter(program []byte, fails func([]byte) bool) []byte {
	tries := 2000
	for again := true; again; {
		again = false
		for n := max(len(program)/2, 1); n > 0; n /= 2 {
			for at := 0; at+n <= len(program) && tries > 0; tries-- {
				cut := append(append([]byte(nil), program[:at]...), program[at+n:]...)
				if fails(cut) {
					program, again = cut, true
				} else {
					at += n
				}
			}
		}
	}
	for at := range program {
		zeroed := append([]byte(nil), program...)
		if zeroed[at] = 0; tries > 0 && program[at] != 0 && fails(zeroed) {
			program = zeroed
		}
		tries--
	}
	return program
}

// Caught calls f and returns its error, or what it panicked with as one.
func Caught(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}
