//go:build invariants

package hostdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

// In this build small work, too, may be done after the call that submits it
// returned, and what does not wait for it finds that out.
func TestSmallWorkComesLate(t *testing.T) {
	d := open(t, 1<<20)
	s, e := newStream(t, d), newEvent(t, d)
	p := alloc(t, d, 512)
	tests := map[string]func() error{
		"Memset": func() error { return d.Memset(p, 1, 512, s) },
		"CopyIn": func() error { return d.CopyIn(p, make([]byte, 512), s) },
		"Copy":   func() error { return d.Copy(p, p+device.Ptr(256), 256, s) },
	}
	for name, submit := range tests {
		late := 0
		for range 2000 {
			require.NoError(t, submit())
			require.NoError(t, d.RecordEvent(e, s))
			done, err := d.QueryEvent(e)
			require.NoError(t, err)
			if !done {
				late++
			}
			require.NoError(t, d.SyncStream(s))
		}
		require.NotZero(t, late, name)
		require.Less(t, late, 2000, name)
	}
}
