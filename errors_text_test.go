package cupool_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/handletest"
)

// Every kind of error is a phrase, with and without an address, a size and a stream.
func TestErrorsAreReadable(t *testing.T) {
	for want, e := range map[string]error{
		"cupool: copy from 0x200 (1 byte) on stream 0x5: use after free":                                                      &cupool.BlockError{Op: "copy from", Ptr: 0x200, Size: 1, Stream: 5, Err: cupool.ErrUseAfterFree},
		"cupool: copy: invalid handle: the buffer is nil":                                                                     &cupool.BlockError{Op: "copy to", Size: -1, Err: cupool.ErrInvalidHandle, Detail: "the buffer is nil"},
		"cupool: record stream for 0x200 (7 bytes): foreign stream":                                                           &cupool.BlockError{Op: "record stream", Ptr: 0x200, Size: 7, Err: cupool.ErrForeignStream},
		"cupool: allocation of 7 bytes on stream 0x5: invalid size":                                                           &cupool.BlockError{Op: "allocation", Size: 7, Stream: 5, Err: cupool.ErrInvalidSize},
		"cupool: allocation: invalid size":                                                                                    &cupool.BlockError{Op: "allocation", Size: -7, Err: cupool.ErrInvalidSize},
		"cupool: waiting for the default stream: its work was not done after 1s: context canceled":                            &cupool.WaitError{Waited: time.Second, Err: context.Canceled},
		"cupool: waiting for stream 0x5: its work was not done after 1s, its oldest event is 2s old: context canceled":        &cupool.WaitError{Stream: 5, Waited: time.Second, Age: 2 * time.Second, Err: context.Canceled},
		"cupool: invalid configuration: Driver: is none":                                                                      &cupool.ConfigError{Field: "Driver", Reason: "is none"},
		"cupool: invalid configuration: Pool: is none":                                                                        &cupool.ConfigError{Field: "Pool", Value: (*cupool.Pool)(nil), Reason: "is none"},
		"cupool: invalid configuration: Name: is empty":                                                                       &cupool.ConfigError{Field: "Name", Value: "", Reason: "is empty"},
		"cupool: invalid configuration: Limit = 0: is too small":                                                              &cupool.ConfigError{Field: "Limit", Value: 0, Reason: "is too small"},
		"cupool: corrupted memory: an overrun: 1 byte from offset 7 on of the block at 0x200 (7 bytes) on the default stream": &cupool.CorruptionError{Ptr: 0x200, Size: 7, Offset: 7, Bytes: 1},
		"cupool: leaked 1 block, 7 B\n\t1 block, 7 B, not recorded where":                                                     &cupool.LeakError{Bytes: 7, Leaks: []cupool.Leak{{Size: 7}}},
	} {
		require.Equal(t, want, e.Error())
		handletest.Readable(t, want)
	}
	for _, op := range []string{"access", "allocation", "copy", "copy from", "copy to", "export", "free", "hold", "import", "look-up", "memset", "record stream", "set soft limit", "tracking", "trim", "view"} {
		for _, p := range []cupool.Ptr{0, 0x200} {
			for _, size := range []int64{-1, 0, 1, 7} {
				for _, s := range []cupool.StreamHandle{0, 5} {
					for _, detail := range []string{"", "it is not there"} {
						handletest.Readable(t, (&cupool.BlockError{Op: op, Ptr: p, Size: size, Stream: s, Err: cupool.ErrClosed, Detail: detail}).Error())
					}
				}
			}
		}
	}
}

// What careless calls return can be read, too.
func TestMisuseIsReadable(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	other, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	defer other.Close()
	theirs, err := other.Alloc(1, nil)
	require.NoError(t, err)
	stranger := other.DefaultStream()
	freed, err := c.Alloc(1000, nil)
	require.NoError(t, err)
	require.NoError(t, c.Free(freed))
	gone, err := cupool.NewBuffer[float32](c, 10, nil)
	require.NoError(t, err)
	require.NoError(t, gone.Free())
	var none *cupool.Buffer[float32]
	var noContext context.Context
	var zero cupool.Buffer[float32]
	var noPool *cupool.Pool
	require.Nil(t, noPool.Driver())
	check := func(calls map[string]func() error) {
		for name, f := range calls {
			err := f()
			require.Error(t, err, name)
			t.Run(fmt.Sprintf("%s: %v", name, err), func(t *testing.T) { handletest.Readable(t, err.Error()) })
		}
	}
	errOf := func(_ any, err error) error { return err }
	calls := map[string]func() error{
		"free twice":       func() error { return c.Free(freed) },
		"free theirs":      func() error { return c.Free(theirs) },
		"free an address":  func() error { return c.FreePtr(0x1234, 5) },
		"free no address":  func() error { return c.FreePtr(0, 5) },
		"look up none":     func() error { return errOf(c.Lookup(0)) },
		"alloc negative":   func() error { return errOf(c.Alloc(-1, nil)) },
		"alloc on theirs":  func() error { return errOf(c.Alloc(0, stranger)) },
		"alloc some there": func() error { return errOf(c.Alloc(1, stranger)) },
		"no context":       func() error { return errOf(c.AllocContext(noContext, 0, nil)) },
		"record freed":     func() error { return c.RecordStream(freed, nil) },
		"record theirs":    func() error { return c.RecordStream(theirs, stranger) },
		"trim":             func() error { return errOf(c.Trim(-1)) },
		"soft limit":       func() error { return c.SetSoftLimit(-1) },
		"copy from nil":    func() error { return errOf(none.ToHost()) },
		"copy to nil":      func() error { return none.CopyFrom(nil) },
		"copy from zero":   func() error { return errOf(zero.ToHost()) },
		"free a zero one":  func() error { return zero.Free() },
		"copy from freed":  func() error { return errOf(gone.ToHost()) },
		"copy to freed":    func() error { return gone.CopyFrom(make([]float32, 10)) },
		"copy too few":     func() error { return gone.CopyFrom(make([]float32, 1)) },
		"copy a buffer":    func() error { return gone.CopyBuffer(none) },
		"memset":           func() error { return gone.Memset(1) },
		"view":             func() error { return errOf(gone.View(1, 20)) },
		"view of freed":    func() error { return errOf(gone.View(1, 2)) },
		"on another":       func() error { return errOf(gone.On(nil)) },
		"no pool":          func() error { return errOf(noPool.Alloc(1, nil)) },
		"no pool to trim":  func() error { return errOf(noPool.Trim(0)) },
		"no pool to free":  func() error { return noPool.FreePtr(0x1234, 5) },
		"a wrong limit":    func() error { return errOf(cupool.New(cupool.Config{Limit: -1})) },
		"no such device":   func() error { return errOf(cupool.Open("tpu:0")) },
		"a wrong setting":  func() error { return errOf(cupool.ParseAllocConf("max_split_size_mb:")) },
		"no setting":       func() error { return errOf(cupool.ParseAllocConf("a,b")) },
	}
	check(calls)
	require.NoError(t, c.Close())
	for _, name := range []string{"copy from nil", "a wrong limit", "no pool"} {
		delete(calls, name)
	}
	check(calls) // of a pool that is closed
}
