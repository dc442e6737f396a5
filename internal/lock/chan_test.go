package lock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l := NewChan()
	require.True(t, l.LockUntil(ctx))
	require.False(t, l.TryLock())
	waits := make(chan bool)
	go func() { waits <- l.LockUntil(ctx) }()
	cancel()
	require.False(t, <-waits)
	go func() { waits <- l.LockUntil(context.Background()) }()
	l.Unlock()
	require.True(t, <-waits)
	l.Unlock()
	require.True(t, l.LockUntil(ctx), "ctx is done, and the lock is free")
}
