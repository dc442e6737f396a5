package main

import (
	"os"
	"testing"

	"github.com/cupool/cupool/internal/fakecuda"
)

// The same on a GPU, or on its stand-in.
func TestSoakCUDA(t *testing.T) {
	if !fakecuda.Loaded() && os.Getenv("CUPOOL_DEVICE") != "cuda" {
		t.Skip("CUPOOL_DEVICE=cuda runs it on a GPU")
	}
	testSoak(t, append(small(t), "-device", "cuda", "-duration", "12s")) // the stand-in is slow
}
