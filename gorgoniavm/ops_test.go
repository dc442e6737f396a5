package gorgoniavm_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var errOp = errors.New("the operation failed")

// ownOp is an operation of a program's own, from tensors to the first one's
// type and shape.
type ownOp struct {
	name  string
	arity int
	do    func(args ...G.Value) (G.Value, error)
	into  func(dst G.Value, args ...G.Value) (G.Value, error)
}

func (o *ownOp) Arity() int { return o.arity }

func (o *ownOp) Type() hm.Type {
	a := hm.TypeVariable('a')
	t := make([]hm.Type, o.arity+1)
	for i := range t {
		t[i] = a
	}
	return hm.NewFnType(t...)
}

func (o *ownOp) InferShape(s ...G.DimSizer) (tensor.Shape, error) {
	return s[0].(tensor.Shape).Clone(), nil
}

func (o *ownOp) Do(args ...G.Value) (G.Value, error) { return o.do(args...) }

func (o *ownOp) UsePreallocDo(dst G.Value, args ...G.Value) (G.Value, error) {
	return o.into(dst, args...)
}

func (o *ownOp) ReturnsPtr() bool      { return true }
func (o *ownOp) CallsExtern() bool     { return o.into != nil }
func (o *ownOp) OverwritesInput() int  { return -1 }
func (o *ownOp) WriteHash(h hash.Hash) { fmt.Fprint(h, o.name) }
func (o *ownOp) String() string        { return o.name }

func (o *ownOp) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
