package dist

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// stageVar is set in the processes of TestKilledProcess. It says where the rank
// that is killed stops: at a name of stages.
const stageVar = "CUPOOL_TEST_DIST_STAGE"

// stages are where a rank is killed.
var stages = []string{"before joining", "joined", "connected", "between calls", "within a call", "never"}

func TestMain(m *testing.M) {
	if stage := os.Getenv(stageVar); stage != "" {
		if err := runRank(stage); err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runRank is a process of TestKilledProcess. The last rank prints "stopped" at its
// stage and goes no further.
func runRank(stage string) error {
	cfg, err := FromEnv()
	if err != nil {
		return err
	}
	cfg.Timeout = patient
	at := func(here string) {
		if here == stage && cfg.Rank == cfg.Size-1 {
			fmt.Println("stopped")
			select {}
		}
	}
	at(stages[0])
	g, err := Join(context.Background(), cfg)
	if err != nil {
		return err
	}
	at(stages[1])
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		return err
	}
	comm, err := Connect(context.Background(), g, pool)
	if err != nil {
		return err
	}
	at(stages[2])
	for i := range 20 {
		if i == 10 {
			at(stages[3])
			if stage == stages[4] && cfg.Rank == cfg.Size-1 {
				err = halfACall(comm)
				at(stage)
			}
		}
		if err == nil {
			err = sum(comm, pool, 200_000)
		}
		if err != nil {
			return err
		}
	}
	if err := comm.Close(); err != nil {
		return err
	}
	return g.Close()
}

// halfACall sends the beginning of an AllReduce to the next rank.
func halfACall(comm Comm) error {
	c, head := comm.(*hostComm), make([]byte, headerSize)
	c.calls++
	k := call{kind: allReduce, op: Sum, src: Memory{Count: 200_000, Type: Int32}}
	c.header(&k).put(head)
	c.links[c.next()].write(head)
	c.links[c.next()].write(make([]byte, 1000))
	return c.flush(c.next())
}

// A process is a rank that runs in another process.
type process struct {
	cmd   *exec.Cmd
	lines chan string
}

func startRank(t *testing.T, rank, size int, addr, stage string) *process {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^$"), lines: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), stageVar+"="+stage, fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", size), "MASTER_ADDR="+host, "MASTER_PORT="+port)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = os.Stderr
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// says returns the process's next line.
func (p *process) says(t *testing.T) string {
	t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(patient):
		t.Fatal("a process hangs")
		return ""
	}
}

// A rank that is killed ends the others, which say which one it was.
func TestKilledProcess(t *testing.T) {
	for _, stage := range stages {
		for _, n := range []int{2, 3, 8} {
			if n == 8 && !testing.Short() && stage != stages[4] && stage != "never" {
				continue // every stage with few, and the widest with many
			}
			t.Run(fmt.Sprintf("%s %d", stage, n), func(t *testing.T) { killOne(t, stage, n) })
		}
	}
}

func killOne(t *testing.T, stage string, n int) {
	addr := freeAddress(t)
	ranks := make([]*process, n)
	for rank := range ranks {
		ranks[rank] = startRank(t, rank, n, addr, stage)
	}
	victim := ranks[n-1]
	if stage != "never" {
		require.Equal(t, "stopped", victim.says(t))
		require.NoError(t, victim.cmd.Process.Kill())
	}
	if stage == stages[0] { // nobody has seen it: another one takes its place
		ranks[n-1] = startRank(t, n-1, n, addr, "never")
		stage = "never"
	}
	for rank, p := range ranks {
		switch line := p.says(t); {
		case stage == "never":
			require.Equal(t, "done", line, "rank %d", rank)
		case p != victim:
			require.Contains(t, line, "error: ", "rank %d", rank)
			require.Contains(t, line, ErrRank.Error(), "rank %d", rank)
			require.Contains(t, line, fmt.Sprintf("rank %d", n-1), "rank %d", rank)
		}
	}
}

// When rank 0 is killed, the others notice.
func TestKilledRank0(t *testing.T) {
	addr := freeAddress(t)
	var ranks [3]*process
	for rank := range ranks {
		stage := stages[2]
		ranks[rank] = startRank(t, rank, len(ranks), addr, stage)
	}
	require.Equal(t, "stopped", ranks[2].says(t))
	require.NoError(t, ranks[0].cmd.Process.Kill())
	line := ranks[1].says(t)
	require.Contains(t, line, ErrRank.Error())
	require.Contains(t, line, "rank 0")
}
