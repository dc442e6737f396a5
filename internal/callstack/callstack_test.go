package callstack

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	var pc [32]uintptr
	runtime.Callers(1, pc[:])
	text := Format(pc[:], nil)
	require.Regexp(t, `^.*callstack\.TestFormat\n\t.*callstack_test\.go:\d+\ntesting\.tRunner\n`, text)
	require.Empty(t, Format(make([]uintptr, 4), nil))
	require.Empty(t, Format(nil, nil))
	skip := func(f string) bool { return strings.Contains(f, "TestFormat") }
	require.Regexp(t, `^testing\.tRunner\n`, Format(pc[:], skip))
}
