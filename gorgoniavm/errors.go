package gorgoniavm

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
)

// What an OpError may unwrap to, besides errors of package cupool and of the
// operations.
var (
	// ErrNoValue: an input has no value, or an operation returned none.
	ErrNoValue = errors.New("no value")
	// ErrOperand: a value does not have the shape, type or number that the
	// graph says.
	ErrOperand = errors.New("value does not fit the graph")
	// ErrNotANumber: WatchNaN or WatchInf found one.
	ErrNotANumber = errors.New("not a finite number")
)

// errNone is what methods of a nil or zero value of this package fail with.
func errNone(what string) error {
	return fmt.Errorf("gorgoniavm: the %s is nil, or this package did not make it: %w", what, cupool.ErrInvalidHandle)
}

// OpError says which node of a graph RunAll failed at.
type OpError struct {
	Node string // its name and ID
	Op   string // the type of its operation, or "input"
	Err  error  // why
}

func (e *OpError) Error() string {
	return fmt.Sprintf("gorgoniavm: %s: %s: %v", e.Node, e.Op, e.Err)
}

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }
