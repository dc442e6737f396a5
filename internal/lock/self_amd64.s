//go:build invariants

#include "textflag.h"

// func self() uintptr
TEXT ·self(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ AX, ret+0(FP)
	RET
