//go:build (linux && (amd64 || arm64)) || (windows && amd64)

package clib

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// crossABI0 is the address of cross.
var crossABI0 uintptr

// cgocall is declared twice: what a function that does not call back into Go gets may
// lie on the goroutine's stack, which stays where it is.

//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

//go:linkname cgocallEscapes runtime.cgocall
func cgocallEscapes(fn uintptr, arg unsafe.Pointer) int32

func run(x *crossing) { cgocall(crossABI0, unsafe.Pointer(x)) }

func callback(x *crossing) { cgocallEscapes(crossABI0, unsafe.Pointer(x)) }

// Callback returns C's address of a function of Go, whose arguments are integers and
// pointers and which returns a uintptr. There is room for some hundred in a process, and
// none is given back.
func Callback(f any) uintptr { return purego.NewCallback(f) }
