package cupool_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

func TestBlockError(t *testing.T) {
	for want, e := range map[string]cupool.BlockError{
		"cupool: free of 0x200: double free":                                             {Op: "free", Ptr: 0x200, Size: -1, Err: cupool.ErrDoubleFree},
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
	load := "github.com/cupool/cupool.(*Engine).Alloc\n\t/src/cupool/engine.go:9\nmain.load\n\t/src/train.go:42\nexample.com/x/nn.Fit\n\t/src/nn/fit.go:7\nmain.main\n\t/src/main.go:3\nruntime.main\n\t/go/proc.go:1\n"
	e := &cupool.LeakError{Bytes: 3584, Leaks: []cupool.Leak{{Ptr: 0x200, Size: 512}, {Ptr: 0x400, Size: 1024, Stack: load}, {Ptr: 0x800, Size: 512, Label: "w", Stack: load}, {Ptr: 0x800, Size: 1536, Stack: load}}}
	require.Equal(t, "cupool: leaked 4 blocks, 3.5 KiB\n"+
		"\t2 blocks, 2.5 KiB, allocated at main.load (train.go:42), called by nn.Fit (fit.go:7), main.main (main.go:3)\n"+
		"\t1 block, 512 B, not recorded where\n"+
		"\t1 block, 512 B, for w, allocated at main.load (train.go:42), called by nn.Fit (fit.go:7), main.main (main.go:3)", e.Error())
	require.Equal(t, []cupool.LeakGroup{{Blocks: 2, Bytes: 2560, Stack: load}, {Blocks: 1, Bytes: 512}, {Blocks: 1, Bytes: 512, Stack: load, Label: "w"}}, e.Groups())

	e = &cupool.LeakError{Leaks: make([]cupool.Leak, 25)}
	for i := range e.Leaks {
		e.Leaks[i] = cupool.Leak{Size: 1000 - int64(i), Label: fmt.Sprint("label ", i)}
	}
	require.Equal(t, 10, strings.Count(e.Error(), "for label"), "the text is bounded")
	require.ErrorContains(t, e, "and 15 more such places: 15 blocks, 14.4 KiB")
	require.Nil(t, (*cupool.LeakError)(nil).Groups())

	e = &cupool.LeakError{Leaks: []cupool.Leak{{Stack: "runtime.main\n\t/go/proc.go:1\n"}}}
	require.ErrorContains(t, e, "allocated at runtime.main (proc.go:1)", "rather than nothing")
}

func TestConfigErrorText(t *testing.T) {
	e := &cupool.ConfigError{Field: "Limit", Value: -1, Reason: "must not be negative"}
	require.Equal(t, "cupool: invalid configuration: Limit = -1: must not be negative", e.Error())
	require.ErrorIs(t, fmt.Errorf("opening: %w", e), cupool.ErrInvalidConfig)
}

// What a stranger wrote into a setting fills no log and moves no cursor.
func TestConfigErrorOfAStranger(t *testing.T) {
	for _, text := range []string{strings.Repeat("9", 4<<20), strings.Repeat("\x1b[2J\x9b\n\x00", 20), "a:" + strings.Repeat("é", 1<<10), "max_split_size_mb:\x1b[2J"} {
		_, ofSettings := cupool.ParseAllocConf(text)
		_, ofDivisions := cupool.ParseDivisions(text)
		_, ofBytes := cupool.ParseBytes(text)
		_, ofDevice := cupool.Open(text)
		_, ofHost := cupool.Open("host:" + text)
		for i, err := range []error{ofSettings, ofDivisions, ofBytes, ofDevice, ofHost} {
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1000, "%d", i)
			require.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }), "%d: %q", i, err)
		}
	}
}

// The text of an OOMError ends with the first eight of those that hold memory.
func TestOOMErrorTable(t *testing.T) {
	var holders []snapshot.Holder
	for i := range 10 {
		holders = append(holders, snapshot.Holder{Pool: "p", Stream: 1, Label: fmt.Sprint(i), Live: 1 << 20, Pending: 512, Cached: 3 << 30})
	}
	_, text, _ := strings.Cut((&cupool.OOMError{Table: holders[:2]}).Error(), "\n")
	require.Equal(t, "\t      live    pending     cached"+
		"\n\t     1 MiB      512 B      3 GiB  pool \"p\", stream 1, label \"0\""+
		"\n\t     1 MiB      512 B      3 GiB  pool \"p\", stream 1, label \"1\"", text)
	require.Contains(t, (&cupool.OOMError{Table: holders}).Error(), "label \"7\"\n\t     2 MiB      1 KiB      6 GiB  2 more")
}
