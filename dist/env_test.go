package dist_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// setEnv sets variables, given as NAME=VALUE, and clears all others that FromEnv
// reads.
func setEnv(t *testing.T, vars ...string) {
	for _, name := range []string{
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "SLURM_PROCID", "SLURM_NTASKS",
		"SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID", "CUPOOL_DIST_TOKEN",
		"TORCHELASTIC_USE_AGENT_STORE",
	} {
		t.Setenv(name, "")
	}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		require.NoError(t, os.Setenv(name, value))
	}
}

func TestFromEnv(t *testing.T) {
	for name, test := range map[string]struct {
		vars []string
		want dist.Launch
	}{
		"nothing": {nil, dist.Launch{}},
		"torchrun": {
			[]string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node7", "MASTER_PORT=29500"},
			dist.Launch{Rank: 3, Size: 8, LocalRank: 1, Address: "node7:29500"},
		},
		"torchrun whose agent has the port": {
			[]string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node7", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True"},
			dist.Launch{Rank: 3, Size: 8, LocalRank: 1, Address: "node7:29501"},
		},
		"a port with spaces, of such an agent": {
			[]string{"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=node7", "MASTER_PORT= 29500 ", "TORCHELASTIC_USE_AGENT_STORE=True"},
			dist.Launch{Rank: 3, Size: 8, Address: "node7:29501"},
		},
		"a port in another way of writing": {
			[]string{"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=node7", "MASTER_PORT=+029500"},
			dist.Launch{Rank: 3, Size: 8, Address: "node7:29500"},
		},
		"torchrun in a Slurm job": {
			[]string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node7", "MASTER_PORT=29500", "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0"},
			dist.Launch{Rank: 3, Size: 8, LocalRank: 1, Address: "node7:29500"},
		},
		"IPv6": {
			[]string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::1", "MASTER_PORT=1234"},
			dist.Launch{Size: 2, Address: "[fd00::1]:1234"},
		},
		"IPv6 in brackets": {
			[]string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=[fd00::1]", "MASTER_PORT=1234"},
			dist.Launch{Size: 2, Address: "[fd00::1]:1234"},
		},
		"a token": {
			[]string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1", "CUPOOL_DIST_TOKEN=x"},
			dist.Launch{Rank: 1, Size: 2, Address: "a:1", Token: "x"},
		},
		"one rank of a launcher": {[]string{"RANK=0", "WORLD_SIZE=1"}, dist.Launch{Size: 1}},
		"Kubernetes' indexed job": {
			[]string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=4", "MASTER_ADDR=job-0.svc", "MASTER_PORT=29500"},
			dist.Launch{Rank: 2, Size: 4, Address: "job-0.svc:29500"},
		},
		"an indexed job of single programs": {[]string{"JOB_COMPLETION_INDEX=2"}, dist.Launch{}},
		"Slurm": {
			[]string{"SLURM_PROCID=5", "SLURM_NTASKS=16", "SLURM_LOCALID=5", "SLURM_JOB_NODELIST=gpu[007-010,3],x", "SLURM_JOB_ID=1234567", "SLURM_LAUNCH_NODE_IPADDR=10.1.1.1"},
			dist.Launch{Rank: 5, Size: 16, LocalRank: 5, Address: "gpu007:24567"},
		},
		"Slurm's step": {
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=b2", "SLURM_JOB_NODELIST=b[1-3]", "MASTER_PORT=77"},
			dist.Launch{Size: 2, Address: "b2:77"},
		},
		"Slurm with an address": {
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LAUNCH_NODE_IPADDR=10.1.1.1", "MASTER_PORT=77"},
			dist.Launch{Size: 2, Address: "10.1.1.1:77"},
		},
		"as many ranks as can be": {
			[]string{"RANK=65535", "WORLD_SIZE=65536", "MASTER_ADDR=a", "MASTER_PORT=1"},
			dist.Launch{Rank: 65535, Size: 65536, Address: "a:1"},
		},
		"Slurm in an indexed job": {
			[]string{"SLURM_PROCID=1", "SLURM_NTASKS=2", "JOB_COMPLETION_INDEX=0", "MASTER_ADDR=a", "MASTER_PORT=1"},
			dist.Launch{Rank: 1, Size: 2, Address: "a:1"},
		},
		"a shell of salloc": {[]string{"SLURM_NTASKS=2", "SLURM_JOB_ID=7"}, dist.Launch{}},
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, test.vars...)
			got, err := dist.FromEnv()
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestFromEnvRefuses(t *testing.T) {
	torch := []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"}
	for name, test := range map[string]struct {
		vars  []string
		field string
		says  string
	}{
		"no number":              {append(torch, "RANK=one"), "RANK", ""},
		"a negative rank":        {append(torch, "RANK=-1"), "RANK", ""},
		"a rank beyond the size": {append(torch, "RANK=2"), "RANK", "ranks of a group of 2 (WORLD_SIZE) are 0 to 1"},
		"no size":                {append(torch, "WORLD_SIZE="), "WORLD_SIZE", "it is not set, and RANK=1 is"},
		"size 0":                 {append(torch, "WORLD_SIZE=0"), "WORLD_SIZE", ""},
		"a huge size":            {append(torch, "WORLD_SIZE=65537"), "WORLD_SIZE", "a group has 1 to 65536 ranks"},
		"no rank":                {append(torch, "RANK="), "RANK", ""},
		"a bad local rank":       {append(torch, "LOCAL_RANK=x"), "LOCAL_RANK", ""},
		"no address":             {append(torch, "MASTER_ADDR="), "MASTER_ADDR", ""},
		"no port":                {append(torch, "MASTER_PORT="), "MASTER_PORT", "it is the port"},
		"a bad port":             {append(torch, "MASTER_PORT=66000"), "MASTER_PORT", "from 1 to 65535"},
		"Slurm without a size":   {[]string{"SLURM_PROCID=0"}, "WORLD_SIZE", ""},
		"Slurm's broken list":    {[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=a[1"}, "SLURM_JOB_NODELIST", ""},
		"Slurm's odd list":       {[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=a[1a]"}, "SLURM_JOB_NODELIST", ""},
		"Slurm's empty list":     {[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=,"}, "SLURM_JOB_NODELIST", ""},
		"Slurm's odd job":        {[]string{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=a", "SLURM_JOB_ID=x"}, "SLURM_JOB_ID", ""},
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, test.vars...)
			_, err := dist.FromEnv()
			var bad *cupool.ConfigError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, test.field, bad.Field)
			require.Equal(t, strconv.Quote(os.Getenv(test.field)), bad.Value)
			require.Contains(t, bad.Reason, test.says)
		})
	}
}

func FuzzFirstHost(f *testing.F) {
	for _, s := range []string{"a", "a,b", "n[01-03]", "n[1,2]x", "a[1-2]-[3-4]", "[", "a[", "a]", "", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		host, ok := dist.FirstHost(list)
		if ok {
			require.NotEmpty(t, host)
			require.False(t, strings.ContainsAny(host, ",[]"), host)
		}
	})
}
