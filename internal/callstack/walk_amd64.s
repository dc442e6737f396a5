#include "textflag.h"

// func walk(pcs []uintptr) (n int)
// Go keeps frame pointers: BP is the address of the caller's frame record, which
// holds the record before it and, above, the return address. The first word of the
// goroutine's g but one is the end of its stack.
TEXT ·walk(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ pcs_base+0(FP), AX
	MOVQ pcs_len+8(FP), R8
	MOVQ (TLS), CX
	MOVQ 8(CX), CX
	MOVQ SP, DX
	MOVQ BP, SI
	XORQ BX, BX

next:
	CMPQ SI, DX
	JLS  done
	CMPQ SI, CX
	JCC  done
	MOVQ 8(SI), DI
	MOVQ DI, (AX)(BX*8)
	INCQ BX
	CMPQ BX, R8
	JEQ  done
	MOVQ SI, DX
	MOVQ (SI), SI
	JMP  next

done:
	MOVQ BX, n+24(FP)
	RET
