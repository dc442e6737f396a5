package device

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Memory goes back with the size that it was allocated with, also after a refusal.
func TestUpstream(t *testing.T) {
	refuse := errors.New("refused")
	var freed []int64
	u := NewUpstream(
		func(size int64) (Ptr, error) {
			if size > 100 {
				return 0, refuse
			}
			return Ptr(size), nil
		},
		func(p Ptr, size int64) error {
			freed = append(freed, size)
			if len(freed) == 1 {
				return refuse
			}
			return nil
		})
	_, err := u.MemAlloc(101)
	require.ErrorIs(t, err, refuse)
	p, err := u.MemAlloc(7)
	require.NoError(t, err)
	require.ErrorIs(t, u.MemFree(p), refuse)
	require.NoError(t, u.MemFree(p))
	require.Equal(t, []int64{7, 7}, freed)
	require.Empty(t, u.sizes)
}
