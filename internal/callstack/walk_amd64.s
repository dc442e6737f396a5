#include "go_asm.h"
#include "textflag.h"

// func walk(pcs *[depth]uintptr) (n int)
// Go keeps frame pointers: BP is the address of the caller's frame record, which
// holds the record before it and, above, the return address. The first word of the
// goroutine's g but one is the end of its stack.
TEXT ·walk(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ pcs+0(FP), AX
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
	CMPQ BX, $const_depth
	JEQ  done
	MOVQ SI, DX
	MOVQ (SI), SI
	JMP  next

done:
	MOVQ BX, n+8(FP)
	RET
