#include "textflag.h"
#include "go_asm.h"

#define STACK 144 // bytes of the arguments on the stack: MaxArgs - 8 words, and two of room
#define SAVED 144 // above them
#define FRAME 240

// cross(R0 = *crossing) makes the calls of a crossing. It runs on the system stack, as
// C, whose convention keeps R19 to R28 over calls. R27 is the assembler's own.
GLOBL ·crossABI0(SB), NOPTR|RODATA, $8
DATA ·crossABI0(SB)/8, $cross(SB)
TEXT cross(SB), NOSPLIT|NOFRAME, $0
	SUB  $FRAME, RSP
	STP  (R29, R30), (SAVED+0)(RSP)
	STP  (R19, R20), (SAVED+16)(RSP)
	STP  (R21, R22), (SAVED+32)(RSP)
	STP  (R23, R24), (SAVED+48)(RSP)
	STP  (R25, R27), (SAVED+64)(RSP)
	ADD  $SAVED, RSP, R29
	MOVD R0, R19
	MOVD ZR, R20 // the failure

	MOVD crossing_get(R19), R9
	CBZ  R9, run
	ADD  $crossing_prev, R19, R0
	CALL (R9)
	CBNZW R0, refused
	MOVD crossing_ctx(R19), R0
	MOVD crossing_prev(R19), R1
	CMP  R0, R1
	BEQ  same
	MOVD crossing_set(R19), R9
	CALL (R9)
	CBNZW R0, refused
	B    run
same:
	MOVD ZR, crossing_prev(R19)
run:
	MOVD crossing_steps(R19), R21
	MOVD crossing_n(R19), R22
step:
	CBZ  R22, leave
	SUB  $1, R22
	CBZ  R20, local
	MOVBU Step_Always(R21), R9
	CBZ  R9, next
local:
	ADD  $Step_Args, R21, R10
	MOVD Step_Local(R21), R11
bit:
	CBZ  R11, stack
	RBIT R11, R12
	CLZ  R12, R12
	ADD  R12<<3, R10, R12
	MOVD (R12), R13
	ADD  R21, R13
	MOVD R13, (R12)
	SUB  $1, R11, R12
	AND  R12, R11
	B    bit
stack:
	MOVD Step_N(R21), R11
	SUB  $8, R11
	ADD  $64, R10, R12
	MOVD RSP, R13
word:
	CMP  $0, R11
	BLE  call
	MOVD.P 8(R12), R14
	MOVD.P R14, 8(R13)
	SUB  $1, R11
	B    word
call:
	MOVD Step_List(R21), R23
	CBNZ R23, list
	LDP  0(R10), (R0, R1)
	LDP  16(R10), (R2, R3)
	LDP  32(R10), (R4, R5)
	LDP  48(R10), (R6, R7)
	MOVD Step_Fn(R21), R9
	CALL (R9)
	MOVD R0, Step_Result(R21)
check:
	SXTW R0, R0
	CBZ  R0, next
	MOVD crossing_ok(R19), R9
	CMP  R0, R9
	BEQ  next
	MOVBU Step_Ignore(R21), R9
	CBNZ R9, next
	CBNZ R20, next
	MOVD R0, R20
next:
	ADD  $Step__size, R21
	B    step
list:
	MOVD Step_Done(R21), R24
	MOVD Step_Count(R21), R9
	CMP  R9, R24
	BGE  next
	MOVD (R23)(R24<<3), R0
	MOVD Step_Fn(R21), R9
	CALL (R9)
	MOVD R0, Step_Result(R21)
	CBNZW R0, check
	ADD  $1, R24
	MOVD R24, Step_Done(R21)
	B    list
leave:
	MOVD crossing_prev(R19), R0
	CBZ  R0, out
	MOVD crossing_set(R19), R9
	CALL (R9)
out:
	MOVD R20, crossing_err(R19)
	LDP  (SAVED+64)(RSP), (R25, R27)
	LDP  (SAVED+48)(RSP), (R23, R24)
	LDP  (SAVED+32)(RSP), (R21, R22)
	LDP  (SAVED+16)(RSP), (R19, R20)
	LDP  (SAVED+0)(RSP), (R29, R30)
	ADD  $FRAME, RSP
	RET
refused:
	SXTW R0, R20
	MOVD $-1, R9
	MOVD R9, crossing_n(R19)
	B    out
