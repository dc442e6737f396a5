package cupool

// A leads to b.go.
func A() { Type{}.method() }

// Const and Var are exported, and local is not.
const Const = 1

// Var is exported.
var Var, local = 1, 2
