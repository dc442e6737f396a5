package testkit

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Gzip returns data as gzip compresses it.
func Gzip(t testing.TB, data []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}
