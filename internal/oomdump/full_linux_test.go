package oomdump

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

// A disk that has room for little more has what fits, whole, and nothing else.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	less := limit
	less.Cur = 2000
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &less))
	stem, err := Write(dir, start, "it is full", snapshot.Snapshot{Device: strings.Repeat("x", 3000)})
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	require.EqualError(t, err, "cannot write "+stem+".pickle: file too large")
	require.Len(t, files(t, dir), 2)
}
