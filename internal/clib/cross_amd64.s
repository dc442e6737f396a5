//go:build linux || windows

#include "textflag.h"
#include "go_asm.h"

// C's convention. FIRST is the register of the first argument. The first REGISTERS
// arguments are in registers, the others on the stack from STACK bytes on: Windows has
// room there for those in registers, too.
#ifdef GOOS_windows
#define FIRST     CX
#define REGISTERS 4
#define STACK     32
#else
#define FIRST     DI
#define REGISTERS 6
#define STACK     0
#endif

#define SAVED 192 // above the arguments on the stack, which are at most MaxArgs words

// cross(FIRST = *crossing) makes the calls of a crossing. It runs on the system stack, as
// C, whose convention keeps BX, R12, R13, R14 and R15 over calls.
GLOBL ·crossABI0(SB), NOPTR|RODATA, $8
DATA ·crossABI0(SB)/8, $cross(SB)
TEXT cross(SB), NOSPLIT, $240
	MOVQ BX, (SAVED+0)(SP)
	MOVQ R12, (SAVED+8)(SP)
	MOVQ R13, (SAVED+16)(SP)
	MOVQ R14, (SAVED+24)(SP)
	MOVQ R15, (SAVED+32)(SP)
	MOVQ FIRST, BX
	XORL R15, R15 // the failure

	MOVQ crossing_get(BX), AX
	TESTQ AX, AX
	JEQ  run
	LEAQ crossing_prev(BX), FIRST
	CALL AX
	TESTL AX, AX
	JNE  refused
	MOVQ crossing_ctx(BX), FIRST
	CMPQ FIRST, crossing_prev(BX)
	JEQ  same
	MOVQ crossing_set(BX), AX
	CALL AX
	TESTL AX, AX
	JNE  refused
	JMP  run
same:
	MOVQ $0, crossing_prev(BX)
run:
	MOVQ crossing_steps(BX), R12
	MOVQ crossing_n(BX), R13
step:
	TESTQ R13, R13
	JEQ  leave
	DECQ R13
	TESTQ R15, R15
	JEQ  local
	CMPB Step_Always(R12), $0
	JEQ  next
local:
	MOVQ Step_Local(R12), CX
bit:
	TESTQ CX, CX
	JEQ  stack
	BSFQ CX, AX
	ADDQ R12, Step_Args(R12)(AX*8)
	LEAQ -1(CX), DX
	ANDQ DX, CX
	JMP  bit
stack:
	MOVQ Step_N(R12), CX
	SUBQ $REGISTERS, CX
word:
	JLE  call
	MOVQ (Step_Args+8*REGISTERS-8)(R12)(CX*8), AX
	MOVQ AX, (STACK-8)(SP)(CX*8)
	DECQ CX
	JMP  word
call:
	MOVQ Step_List(R12), R14
	TESTQ R14, R14
	JNE  list
#ifdef GOOS_windows
	MOVQ (Step_Args+0)(R12), CX
	MOVQ (Step_Args+8)(R12), DX
	MOVQ (Step_Args+16)(R12), R8
	MOVQ (Step_Args+24)(R12), R9
#else
	MOVQ (Step_Args+0)(R12), DI
	MOVQ (Step_Args+8)(R12), SI
	MOVQ (Step_Args+16)(R12), DX
	MOVQ (Step_Args+24)(R12), CX
	MOVQ (Step_Args+32)(R12), R8
	MOVQ (Step_Args+40)(R12), R9
#endif
	MOVQ Step_Fn(R12), R10
	XORL AX, AX
	CALL R10
	MOVQ AX, Step_Result(R12)
check:
	MOVLQSX AX, AX
	TESTQ AX, AX
	JEQ  next
	CMPQ AX, crossing_ok(BX)
	JEQ  next
	CMPB Step_Ignore(R12), $0
	JNE  next
	TESTQ R15, R15
	JNE  next
	MOVQ AX, R15
next:
	ADDQ $Step__size, R12
	JMP  step
list:
	MOVQ Step_Done(R12), AX
	CMPQ AX, Step_Count(R12)
	JGE  next
	MOVQ (R14)(AX*8), FIRST
	MOVQ Step_Fn(R12), AX
	CALL AX
	MOVQ AX, Step_Result(R12)
	TESTL AX, AX
	JNE  check
	INCQ Step_Done(R12)
	JMP  list
leave:
	MOVQ crossing_prev(BX), FIRST
	TESTQ FIRST, FIRST
	JEQ  out
	MOVQ crossing_set(BX), AX
	CALL AX
out:
	MOVQ R15, crossing_err(BX)
	MOVQ (SAVED+32)(SP), R15
	MOVQ (SAVED+24)(SP), R14
	MOVQ (SAVED+16)(SP), R13
	MOVQ (SAVED+8)(SP), R12
	MOVQ (SAVED+0)(SP), BX
	RET
refused:
	MOVLQSX AX, R15
	MOVQ $-1, crossing_n(BX)
	JMP  out
