package cupool_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestBlockError(t *testing.T) {
	for want, e := range map[string]cupool.BlockError{
		"cupool: free of 0x200: double free":                                             {Op: "free", Ptr: 0x200, Size: -1, Err: cupool.ErrDoubleFree},
		"cupool: free of 0x200 (0 bytes): double free":                                   {Op: "free", Ptr: 0x200, Err: cupool.ErrDoubleFree},
		"cupool: free of 0x200 (7 bytes) on stream 0x5: double free of a recycled block": {Op: "free", Ptr: 0x200, Size: 7, Stream: 5, Err: cupool.ErrStaleBlock},
		"cupool: look-up of 0x1 (7 bytes): foreign pointer: not ours":                    {Op: "look-up", Ptr: 1, Size: 7, Err: cupool.ErrForeignPointer, Detail: "not ours"},
	} {
		require.Equal(t, want, e.Error())
		require.ErrorIs(t, &e, e.Err)
	}
	require.ErrorIs(t, cupool.ErrStaleBlock, cupool.ErrDoubleFree)
	require.NotErrorIs(t, cupool.ErrDoubleFree, cupool.ErrStaleBlock)
}

func TestOOMErrorText(t *testing.T) {
	cause := errors.New("the device said no")
	e := &cupool.OOMError{Device: "dev", Requested: 1000, Rounded: 1024, Segment: 2 << 20, DeviceFree: -1, DeviceTotal: -1, Fragmentation: 0.251, Cause: cause}
	require.Equal(t, "cupool: out of memory on dev: 1000 B requested (block 1 KiB, segment 2 MiB); "+
		"live 0 B, pending 0 B, cached 0 B (largest free 0 B, fragmentation 25 %), reserved 0 B", e.Error(),
		"what is not known is not said")
	require.ErrorIs(t, e, cupool.ErrOutOfMemory)
	require.ErrorIs(t, e, cause)
	e.Cause = nil
	require.ErrorIs(t, e, cupool.ErrOutOfMemory)
}

func TestLeakErrorText(t *testing.T) {
	e := &cupool.LeakError{Bytes: 1536, Leaks: []cupool.Leak{{Ptr: 0x200, Size: 512}, {Ptr: 0x400, Size: 1024, Stack: "main.f\n\tmain.go:7\nmain.main\n\tmain.go:3\n"}}}
	require.Equal(t, "cupool: 2 leaked blocks, 1.5 KiB\n"+
		"\t0x200: 512 bytes\n"+
		"\t0x400: 1024 bytes, allocated at\n"+
		"\t\tmain.f\n\t\t\tmain.go:7\n\t\tmain.main\n\t\t\tmain.go:3", e.Error())

	e = &cupool.LeakError{Leaks: make([]cupool.Leak, 25)}
	require.Equal(t, 10, strings.Count(e.Error(), "\n\t0x0"), "the text is bounded")
	require.ErrorContains(t, e, "... and 15 more")
}

func TestConfigErrorText(t *testing.T) {
	e := &cupool.ConfigError{Field: "Limit", Value: -1, Reason: "must not be negative"}
	require.Equal(t, "cupool: invalid configuration: Limit = -1: must not be negative", e.Error())
	require.ErrorIs(t, fmt.Errorf("opening: %w", e), cupool.ErrInvalidConfig)
}
