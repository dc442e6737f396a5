package operand

import "gorgonia.org/tensor"

// Options are the options of an operation.
type Options struct {
	Reuse, Incr  tensor.Tensor // WithReuse and WithIncr, or nil
	Unsafe, Same bool          // UseUnsafe and AsSameType
}

// ParseOptions returns what the options say.
func ParseOptions(opts []tensor.FuncOpt) Options {
	if len(opts) == 0 {
		return Options{}
	}
	o := tensor.ParseFuncOpts(opts...)
	return Options{Reuse: o.Reuse(), Incr: o.Incr(), Unsafe: !o.Safe(), Same: o.Same()}
}

// Destination returns the tensor that takes the result of an operation on t and others,
// and nil for a new one. StdEng heeds WithIncr first.
func (o *Options) Destination(t tensor.Tensor) tensor.Tensor {
	switch {
	case o.Incr != nil:
		return o.Incr
	case o.Reuse != nil:
		return o.Reuse
	case o.Unsafe:
		return t
	}
	return nil
}

// Fresh reports whether the result is to be a new tensor.
func (o *Options) Fresh() bool { return o.Reuse == nil && o.Incr == nil && !o.Unsafe }
