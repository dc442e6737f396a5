package cupool

// Type has a method, which is no top-level name.
type Type struct{}

func (Type) method() { B[int]() }

// B leads to a.go.
func B[T any]() { A() }
