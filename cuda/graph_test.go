package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCaptureRules: captures over two streams end as CUDA says, and a second
// stream is free again after any of them.
func TestCaptureRules(t *testing.T) {
	d := openTest(t)
	a, b := newStream(t, d), newStream(t, d)
	e := newEvent(t, d)
	p := alloc(t, d, 1<<12)
	follow := func(first, second StreamHandle) {
		require.NoError(t, d.RecordEvent(e, first))
		require.NoError(t, d.StreamWaitEvent(second, e))
	}
	set := func(s StreamHandle, value byte) { require.NoError(t, d.Memset(p, value, 1<<12, s)) }
	for _, c := range []struct {
		name, want string
		work       func() error // between a fork, of b, and the end of a's capture
	}{
		{"joined", "", func() error { set(b, 1); follow(b, a); return nil }},
		{"nothing on the side", "", func() error { follow(b, a); return nil }},
		{"unjoined", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", func() error { set(b, 1); return nil }},
		{"work after the join", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", func() error { follow(b, a); set(b, 1); return nil }},
		{"a wait for what is not captured", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", func() error {
			other := newEvent(t, d)
			require.NoError(t, d.RecordEvent(other, 0))
			return d.StreamWaitEvent(a, other)
		}},
		{"a wait for another capture", "CUDA_ERROR_STREAM_CAPTURE_MERGE", func() error {
			other := newStream(t, d)
			require.NoError(t, d.BeginCapture(other))
			defer d.DropCapture(other)
			require.NoError(t, d.RecordEvent(e, other))
			return d.StreamWaitEvent(a, e)
		}},
		{"an end on the other stream", "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", func() error { _, err := d.EndCapture(b); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, d.BeginCapture(a))
			follow(a, b)
			err := c.work()
			if err != nil {
				d.DropCapture(a)
			} else {
				var g uintptr
				if g, err = d.EndCapture(a); err == nil {
					require.NoError(t, d.LaunchGraph(g, a))
					require.NoError(t, d.DestroyGraph(g))
				}
			}
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			for _, s := range []StreamHandle{a, b} {
				capturing, _, err := d.StreamCapture(s)
				require.NoError(t, err)
				require.False(t, capturing)
				set(s, 2)
				require.NoError(t, d.SyncStream(s))
			}
		})
	}
}
