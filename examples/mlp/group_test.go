package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
)

// parts of all ranks follow each other and come to the whole.
func TestShare(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		at := 5
		for rank := range size {
			first, last := share{rank, size}.part(5, 17)
			require.Equal(t, at, first)
			require.InDelta(t, 12/float64(size), last-first, 1)
			at = last
		}
		require.Equal(t, 17, at)
	}
}

// launched are the variables by which a process can be told its rank.
var launched = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "TORCHELASTIC_USE_AGENT_STORE"}

// noLauncher empties what the environment of a test may have.
func noLauncher(t *testing.T) {
	t.Helper()
	for _, name := range launched {
		t.Setenv(name, "")
	}
}

func parseGroup(t *testing.T, flags string) (group, error) {
	t.Helper()
	o, err := parse(strings.Fields(flags), io.Discard)
	if err != nil {
		return group{}, err
	}
	return o.group, nil
}

func TestGroupFlags(t *testing.T) {
	noLauncher(t)
	for flags, want := range map[string]group{
		"":                                {nodes: 1},
		"-gpus 4":                         {gpus: 4, nodes: 1, comm: "host"},
		"-gpus 1":                         {gpus: 1, nodes: 1, comm: "host"},
		"-gpus 4 -device cuda":            {gpus: 4, nodes: 1, comm: "nccl"},
		"-gpus 4 -device cuda -comm host": {gpus: 4, nodes: 1, comm: "host"},
		"-nodes 5 -rank 3 -rendezvous a:1 -device cuda":         {gpus: 1, nodes: 5, node: 3, rendezvous: "a:1", comm: "nccl"},
		"-nodes 5 -rank 3 -rendezvous a:1 -device cuda -gpus 4": {gpus: 4, nodes: 5, node: 3, rendezvous: "a:1", comm: "nccl"},
		"-nodes 1 -rank 0 -gpus 2 -rendezvous [::]:1":           {gpus: 2, nodes: 1, rendezvous: "[::]:1", comm: "host"},
	} {
		got, err := parseGroup(t, flags)
		require.NoError(t, err, flags)
		if flags == "" {
			require.True(t, got.alone())
			continue
		}
		require.Equal(t, want, got, flags)
	}
	g := group{gpus: 4, nodes: 5, node: 3}
	require.Equal(t, 20, g.size())
	require.Equal(t, share{14, 20}, g.share(2))
}

func TestGroupErrors(t *testing.T) {
	noLauncher(t)
	for flags, want := range map[string]string{
		"-gpus -1":                          "-gpus -1",
		"-nodes -1":                         "-nodes -1",
		"-rank 1":                           "-nodes says how many",
		"-rendezvous a:1":                   "-nodes says how many",
		"-nodes 2":                          "needs a -rank from 0 to 1",
		"-nodes 2 -rank 2":                  "needs a -rank from 0 to 1",
		"-nodes 2 -rank 0":                  "-nodes needs -rendezvous HOST:PORT",
		"-nodes 2 -rank 0 -rendezvous a":    "-rendezvous",
		"-gpus 3":                           "-batch 100 cannot be split among 3 ranks: make it a multiple of 3",
		"-comm nccl":                        "-comm is for several ranks",
		"-gpus 2 -bucket -1":                "-bucket -1 must not be negative",
		"-gpus 2 -comm smoke":               `-comm is host or nccl, not "smoke"`,
		"-gpus 2 -comm nccl":                "-comm nccl is for GPUs",
		"-gpus 2 -device cuda:x":            "cuda:x",
		"-gpus 2 -shift 0 -graph":           "-graph cannot have -comm host in it",
		"-gpus 3 -nodes 5 -rank 1 -batch 5": "-rendezvous",
		"-nodes 2 -rank 0 -rendezvous a:1":  "several machines need GPUs",
	} {
		status, _, stderr := runMLP(t.Context(), strings.Fields(flags)...)
		require.NotEqual(t, training.ExitOK, status, flags)
		require.Contains(t, stderr, want, flags)
	}
}

// What a launcher tells a process makes it a rank, if no flag does.
func TestLaunched(t *testing.T) {
	told := func(t *testing.T, values ...string) {
		noLauncher(t)
		for _, v := range values {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(name, value)
		}
	}
	all := []string{"RANK=5", "WORLD_SIZE=20", "LOCAL_RANK=1", "MASTER_ADDR=first", "MASTER_PORT=29500"}
	rank := group{gpus: 1, nodes: 20, node: 5, local: 1, rendezvous: "first:29500", comm: "nccl"}
	t.Run("no flags", func(t *testing.T) {
		told(t, all...)
		got, err := parseGroup(t, "-device cuda")
		require.NoError(t, err)
		require.Equal(t, rank, got)
		require.Equal(t, "cuda:1", got.device("cuda", 0))
		require.Equal(t, "cuda:0", got.device("cuda:0", 0), "a device that is named")
		require.Equal(t, share{5, 20}, got.share(0))
	})
	t.Run("another rendezvous", func(t *testing.T) {
		told(t, all...)
		got, err := parseGroup(t, "-device cuda -rendezvous other:1")
		require.NoError(t, err)
		require.Equal(t, "other:1", got.rendezvous)
	})
	t.Run("flags", func(t *testing.T) {
		told(t, all...)
		got, err := parseGroup(t, "-gpus 2")
		require.NoError(t, err)
		require.Equal(t, group{gpus: 2, nodes: 1, comm: "host"}, got)
	})
	t.Run("Slurm", func(t *testing.T) {
		told(t, "SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=3", "MASTER_ADDR=first", "MASTER_PORT=29500")
		got, err := parseGroup(t, "-device cuda")
		require.NoError(t, err)
		require.Equal(t, group{gpus: 1, nodes: 4, node: 3, local: 3, rendezvous: "first:29500", comm: "nccl"}, got)
	})
	t.Run("no number", func(t *testing.T) {
		told(t, append(all, "RANK=first")...)
		_, err := parseGroup(t, "")
		require.ErrorContains(t, err, "RANK")
	})
	t.Run("no address", func(t *testing.T) {
		told(t, append(all, "MASTER_PORT=")...)
		_, err := parseGroup(t, "")
		require.ErrorContains(t, err, "MASTER_PORT")
	})
}

func TestDevices(t *testing.T) {
	g := group{gpus: 4, nodes: 1}
	for name, want := range map[string]string{
		"host": "host", "host:1GiB": "host:1GiB", "cuda": "cuda:2", "cuda:1": "cuda:3", "cuda:1,managed": "cuda:3,managed", "cuda,pinned": "cuda:2,pinned", "toaster": "toaster",
	} {
		require.Equal(t, want, g.device(name, 2))
	}
	require.Equal(t, "cuda", (&group{nodes: 1}).device("cuda", 0))
}
