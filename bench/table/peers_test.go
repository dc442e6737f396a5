package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bench is a machine with a GPU, as far as peers.sh sees: its programs are
// stand-ins that print testdata.
type bench struct {
	path, out string
	env       []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{path: t.TempDir(), out: t.TempDir()}
	for _, name := range []string{"awk", "bash", "cat", "chmod", "date", "dirname", "head", "mkdir", "realpath", "rm", "seq", "tee", "true"} {
		file, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		require.NoError(t, os.Symlink(file, filepath.Join(b.path, name)))
	}
	testdata, err := filepath.Abs("testdata")
	require.NoError(t, err)
	b.script(t, "nvidia-smi", `echo "NVIDIA H200, 580.159"`)
	b.script(t, "python3", `[ "$1" = -c ] || cat `+testdata+`/pytorch.txt`)
	b.script(t, "nvcc", `while [ "$1" != -o ]; do shift; done; printf '#!/bin/sh\ncat `+testdata+`/async.txt' >"$2"; chmod +x "$2"`)
	b.script(t, "ours", `echo "$CUPOOL_DEVICE, CPU $ON: $*" >>`+b.out+`/calls
case "$*" in
*ParallelHit*) ;;
*'Hit$/size=1MiB'*) echo "BenchmarkHit/size=1MiB 1 $((30 - ON)).5 ns/op" ;;
*) cat `+testdata+`/ours.txt ;;
esac`)
	b.env = []string{"PATH=" + b.path, "COUNT=2", "CPUS=1,16", "CUPOOL_TEST_AS_TABLE=1", "CUPOOL_TABLE_BINARY=" + os.Args[0],
		"CUPOOL_TEST_BINARY=" + filepath.Join(b.path, "ours")}
	return b
}

func (b *bench) script(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(b.path, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
}

func (b *bench) run(t *testing.T) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(b.path, "bash"), "../peers.sh", b.out)
	cmd.Env, cmd.Stdout, cmd.Stderr = b.env, &out, &errs
	if err := cmd.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestPeers(t *testing.T) {
	b := newBench(t)
	status, stdout, stderr := b.run(t)
	require.Equal(t, 0, status, stderr)
	require.Equal(t, []string{"22 (21–24)", "365 (360–370)", "16.6", "655", "29.8", "25", "met"}, cells(t, stdout, "allocate + free, cached, 512 B"))
	table, err := os.ReadFile(filepath.Join(b.out, "table.md"))
	require.NoError(t, err)
	require.Equal(t, stdout, string(table))
	require.FileExists(t, filepath.Join(b.out, "table.json"))

	calls, err := os.ReadFile(filepath.Join(b.out, "calls"))
	require.NoError(t, err)
	const always = "cuda, CPU : -test.run ^$ -test.benchmem -test.timeout 1h -test.count 2 -test.benchtime 0.5s -test.bench "
	require.Equal(t, always+"^Benchmark(Hit|RandomLive1000|CrossStream|EngineAllocFree|MissSplit|Trim1000|Ruler)$\n"+
		always+"^BenchmarkParallelHit$ -test.cpu 1,16\n", string(calls))
}

// What runs alone is kept on one processor: the given one, or the one where a
// hit takes least.
func TestPeersOnOneProcessor(t *testing.T) {
	for cpu, want := range map[string]string{"2": "2", "quiet": "3"} {
		t.Run(cpu, func(t *testing.T) {
			b := newBench(t)
			b.script(t, "nproc", "echo 4")
			b.script(t, "taskset", `export ON=$2; shift 2; exec "$@"`)
			b.script(t, "python3", `[ "$1" = -c ] || echo "$ON" >`+b.out+`/python`)
			b.env = append(b.env, "CPU="+cpu)
			status, _, stderr := b.run(t)
			require.Equal(t, 0, status, stderr)
			require.Contains(t, stderr, "runs on processor "+want+"\n")
			calls, err := os.ReadFile(filepath.Join(b.out, "calls"))
			require.NoError(t, err)
			require.Contains(t, string(calls), "cuda, CPU "+want+": -test.run ^$ -test.benchmem")
			require.Contains(t, string(calls), "cuda, CPU : -test.run ^$ -test.benchmem", "several goroutines run anywhere")
			python, err := os.ReadFile(filepath.Join(b.out, "python"))
			require.NoError(t, err)
			require.Equal(t, want+"\n", string(python))
		})
	}
}

// A processor that cannot be had ends the script before anything is measured.
func TestPeersOnNoProcessor(t *testing.T) {
	for name, c := range map[string]struct{ cpu, taskset, want string }{
		"no taskset":           {"2", "", "CPU=2 takes taskset"},
		"no such processor":    {"99", "exit 1", "CPU=99 names no processor"},
		"nothing was measured": {"quiet", "exit 1", "CPU=quiet: no processor ran BenchmarkHit"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(t, "nproc", "echo 4")
			if c.taskset != "" {
				b.script(t, "taskset", c.taskset)
			}
			b.env = append(b.env, "CPU="+c.cpu)
			status, stdout, stderr := b.run(t)
			require.Equal(t, 3, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.NoFileExists(t, filepath.Join(b.out, "ours.txt"))
		})
	}
}

// A peer that cannot run leaves its column empty, and the script says why.
func TestPeersMissing(t *testing.T) {
	b := newBench(t)
	b.script(t, "python3", "exit 1")
	require.NoError(t, os.Remove(filepath.Join(b.path, "nvcc")))
	b.env = append(b.env, "CUDA_HOME=/none")
	status, stdout, stderr := b.run(t)
	require.Equal(t, 0, status, stderr)
	require.Equal(t, []string{"22 (21–24)", "", "", "", "", "25", "met"}, cells(t, stdout, "allocate + free, cached, 512 B"))
	require.Contains(t, stderr, "PyTorch is left out: python3 has no torch that works with CUDA")
	require.Contains(t, stderr, "cudaMallocAsync is left out: there is no /none/bin/nvcc")
}

// Without Go the results are kept for a table that is made elsewhere.
func TestPeersWithoutGo(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "CUPOOL_TABLE_BINARY=")
	status, stdout, stderr := b.run(t)
	require.Equal(t, 0, status, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no Go here to make the table")
	require.FileExists(t, filepath.Join(b.out, "ours.txt"))

	b.env = append(b.env, "CUPOOL_TEST_BINARY=")
	status, _, stderr = b.run(t)
	require.Equal(t, 3, status)
	require.Contains(t, stderr, "no Go here, and CUPOOL_TEST_BINARY names no binary")
}

// What cannot be measured ends the script, with a status and no table.
func TestPeersFailing(t *testing.T) {
	for name, c := range map[string]struct {
		program, text, want string
		status              int
	}{
		"no GPU":            {"nvidia-smi", "echo no devices; exit 9", "no GPU here: nvidia-smi says: no devices", 3},
		"ours fails":        {"ours", "echo FAIL; exit 1", "FAIL", 1},
		"PyTorch fails":     {"python3", `[ "$1" = -c ] || { echo no compiler >&2; exit 1; }`, "no compiler", 1},
		"nvcc cannot build": {"nvcc", "echo no header >&2; exit 2", "no header", 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(t, c.program, c.text)
			status, stdout, stderr := b.run(t)
			require.Equal(t, c.status, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.NoFileExists(t, filepath.Join(b.out, "table.md"))
		})
	}
}
