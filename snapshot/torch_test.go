package snapshot_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

// What PyTorch wrote is read, written and read the same.
func TestReadTorch(t *testing.T) {
	for _, name := range []string{"default", "expandable"} {
		f, err := os.Open("../testdata/traces/torch_" + name + ".pickle.gz")
		require.NoError(t, err)
		defer f.Close()
		list, err := snapshot.Read(f)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, snapshot.WriteTorch(&out, list...))
		again, err := snapshot.Read(&out)
		require.NoError(t, err)
		require.Equal(t, list, again)
	}
}
