package callstack

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	var pc [32]uintptr
	runtime.Callers(1, pc[:])
	text := Format(pc[:])
	require.Regexp(t, `^.*callstack\.TestFormat\n\t.*callstack_test\.go:\d+\ntesting\.tRunner\n`, text)
	require.Empty(t, Format(make([]uintptr, 4)))
	require.Empty(t, Format(nil))
}
