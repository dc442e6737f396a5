package kernels

// ActivateArgs are those of Activate: Dst becomes Act(A) or, with a Y, what the
// activation made, A times its slope there. Dst may be A.
type ActivateArgs struct {
	Dst, A, Y     uint64 // Y 0: none
	Activation, N int64
}
