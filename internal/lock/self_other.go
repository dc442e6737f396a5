//go:build invariants && !amd64 && !arm64

package lock

import (
	"bytes"
	"runtime"
	"strconv"
)

// self returns the number of the calling goroutine, which a stack begins with:
// "goroutine 7 [running]:".
func self() uintptr {
	var stack [64]byte
	number := bytes.Fields(stack[:runtime.Stack(stack[:], false)])[1]
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}
