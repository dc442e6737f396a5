#include "textflag.h"

// func walk(pcs []uintptr) (n int)
// Go keeps frame pointers: R29 is the address of the caller's frame record, which
// holds the record before it and, above, the return address. It lies a word below
// the caller's frame. The first word of the
// goroutine's g but one is the end of its stack.
TEXT ·walk(SB), NOSPLIT|NOFRAME, $0-32
	MOVD pcs_base+0(FP), R0
	MOVD pcs_len+8(FP), R6
	MOVD 8(g), R1
	MOVD RSP, R2
	SUB  $16, R2
	MOVD R29, R3
	MOVD $0, R4

next:
	CMP  R2, R3
	BLS  done
	CMP  R1, R3
	BHS  done
	MOVD 8(R3), R5
	MOVD R5, (R0)(R4<<3)
	ADD  $1, R4
	CMP  R6, R4
	BEQ  done
	MOVD R3, R2
	MOVD (R3), R3
	B    next

done:
	MOVD R4, n+24(FP)
	RET
