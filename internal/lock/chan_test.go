package lock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var l Chan
	l.Init(Reclaim, 1)
	require.True(t, l.LockUntil(ctx))
	require.False(t, l.TryLock())
	waits := make(chan bool)
	go func() { waits <- l.LockUntil(ctx) }()
	cancel()
	require.False(t, <-waits)
	go func() {
		took := l.LockUntil(context.Background())
		if took {
			l.Unlock()
		}
		waits <- took
	}()
	l.Unlock()
	require.True(t, <-waits)
	require.True(t, l.LockUntil(ctx), "ctx is done, and the lock is free")
	l.Unlock()
}
