package main

import (
	"bytes"
	"fmt"
	stdnet "net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/nccl"
)

func TestMain(m *testing.M) {
	testkit.AsProgram(main)
	os.Exit(m.Run())
}

// needTwo skips where there are no two GPUs, or no NCCL to connect them.
func needTwo(t *testing.T) {
	t.Helper()
	gputest.Need(t)
	d, err := cupool.Open("cuda:1")
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, d.Close())
	if _, err := nccl.Version(""); err != nil {
		t.Skip(err)
	}
}

// rankOf is the program as torchrun starts one of so many ranks.
func rankOf(t *testing.T, ranks, i int, host, port, args string) *exec.Cmd {
	t.Helper()
	return testkit.Program(t, args, "MASTER_ADDR="+host, "MASTER_PORT="+port,
		fmt.Sprint("RANK=", i), fmt.Sprint("LOCAL_RANK=", i), fmt.Sprint("WORLD_SIZE=", ranks))
}

// Ranks that torchrun starts learn what one does with the same batch. The first one
// prints.
func TestRanks(t *testing.T) {
	needTwo(t)
	const args = "-train-samples 64 -test-samples 48 -batch 16 -epochs 3 -hidden 8 -shift 0 -device cuda"
	want := trainedTogether(t, 1, args)
	for _, flags := range []string{"", " -graph"} {
		t.Run(flags, func(t *testing.T) { require.InDeltaSlice(t, want, trainedTogether(t, 2, args+flags), 1e-3) })
	}
}

// trainedTogether returns the losses that so many processes print, a rank each.
func trainedTogether(t *testing.T, ranks int, args string) (losses []float64) {
	t.Helper()
	host, port, err := stdnet.SplitHostPort(testkit.FreeAddress(t))
	require.NoError(t, err)
	all, outs, errs := make([]*exec.Cmd, ranks), make([]bytes.Buffer, ranks), make([]bytes.Buffer, ranks)
	for i := range all {
		all[i] = rankOf(t, ranks, i, host, port, args)
		all[i].Stdout, all[i].Stderr = &outs[i], &errs[i]
		require.NoError(t, all[i].Start())
	}
	for i, p := range all {
		require.NoError(t, p.Wait(), "rank %d: %s", i, &errs[i])
		require.Equal(t, i == 0, outs[i].Len() > 0, "rank %d printed: %s", i, &outs[i])
	}
	for line := range strings.Lines(outs[0].String()) {
		var i, n int
		var loss float64
		if got, _ := fmt.Sscanf(line, "epoch %d/%d loss %f", &i, &n, &loss); got == 3 {
			losses = append(losses, loss)
		}
	}
	require.Len(t, losses, 3)
	return losses
}
