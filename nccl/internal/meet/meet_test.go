package meet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit"
)

// patient is longer than anything here takes that does not hang.
const patient = time.Minute

// rankVar has the Config of a process that a test starts.
const rankVar = "CUPOOL_TEST_MEET"

func TestMain(m *testing.M) {
	text := os.Getenv(rankVar)
	if text == "" {
		os.Exit(m.Run())
	}
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	fmt.Println("begins")
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	value, err := share(ctx, c)
	fmt.Printf("%q %v\n", value, err)
}

// share has rank 0 give the name.
func share(ctx context.Context, c Config) ([]byte, error) {
	return Share(ctx, c, func() ([]byte, error) { return []byte("value of " + c.Name), nil })
}

// A process is a rank in one of its own.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
}

// start starts a process, and returns when it has begun.
func start(t *testing.T, c Config) *process {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.Env = append(os.Environ(), rankVar+"="+string(text))
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.Stderr = os.Stderr
	require.NoError(t, p.Start())
	p.lines = bufio.NewScanner(out)
	require.Equal(t, "begins", p.says())
	return p
}

// says returns the next line.
func (p *process) says() string {
	p.lines.Scan()
	return p.lines.Text()
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// places are where ranks meet.
func places(t *testing.T) map[string]Config {
	return map[string]Config{
		"token":    {Address: testkit.FreeAddress(t), Token: "secret"},
		"loopback": {Address: strings.Replace(testkit.FreeAddress(t), "127.0.0.1", "localhost", 1)},
		"folder":   {Folder: t.TempDir()},
	}
}

// as returns the Config of a rank.
func (c Config) as(rank, size int) Config {
	c.Rank, c.Size, c.Name = rank, size, "test"
	return c
}

// atAll runs a test at all places.
func atAll(t *testing.T, f func(t *testing.T, at Config)) {
	for name, at := range places(t) {
		t.Run(name, func(t *testing.T) { f(t, at) })
	}
}

// Ranks of several processes get what rank 0 has, in whatever order they come, and
// nothing is left.
func TestProcesses(t *testing.T) {
	atAll(t, func(t *testing.T, at Config) {
		for range 2 {
			var all []*process
			for _, rank := range []int{2, 0, 1} {
				all = append(all, start(t, at.as(rank, 3)))
			}
			for _, p := range all {
				require.Equal(t, `"value of test" <nil>`, p.says())
				require.NoError(t, p.Wait())
			}
		}
		if at.Folder != "" {
			left, err := os.ReadDir(at.Folder)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})
}

// One communicator is made after another, while ranks are ahead of others.
func TestNames(t *testing.T) {
	atAll(t, func(t *testing.T, at Config) {
		var wg sync.WaitGroup
		errs := make(chan error, 3*20)
		for rank := range 3 {
			wg.Go(func() {
				for i := range 20 {
					c := at.as(rank, 3)
					c.Name = fmt.Sprint("number-", i)
					value, err := share(t.Context(), c)
					if string(value) != "value of "+c.Name {
						errs <- fmt.Errorf("rank %d, %s: %q, %w", rank, c.Name, value, err)
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		require.NoError(t, <-errs)
	})
}

// All who wait say who has not come, whichever of them gives up first.
func TestRankDoesNotCome(t *testing.T) {
	const size, absent = 4, 1
	for name, first := range map[string]int{"rank 0 gives up": 0, "another one gives up": 2} {
		t.Run(name, func(t *testing.T) {
			atAll(t, func(t *testing.T, at Config) {
				for within := 200 * time.Millisecond; ; within *= 2 { // longer, until all knew of each other
					errs := make([]error, size)
					var wg sync.WaitGroup
					for _, rank := range []int{0, 2, 3} {
						ctx, cancel := context.WithTimeout(t.Context(), within)
						defer cancel()
						if rank != first {
							ctx, cancel = context.WithTimeout(t.Context(), 2*within)
							defer cancel()
						}
						wg.Go(func() { _, errs[rank] = share(ctx, at.as(rank, size)) })
					}
					wg.Wait()
					if errors.Is(errs[first], context.DeadlineExceeded) && !slices.ContainsFunc([]int{0, 2, 3}, func(rank int) bool {
						return !errors.Is(errs[rank], dist.ErrRank) || !strings.Contains(errs[rank].Error(), "waiting for ranks [1] of 4")
					}) {
						break
					}
					require.Less(t, within, patient, "%v", errs)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := share(ctx, at.as(absent, size)) // without rank 0
				require.ErrorIs(t, err, dist.ErrRank)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "waiting for rank")
			})
		})
	}
}

// Who has not come stands before who has given up.
func TestRoll(t *testing.T) {
	for want, steps := range map[string][]int{ // a rank comes, and -rank leaves
		"ranks [1 2 3] of 4":                    {0},
		"ranks [1] of 4":                        {0, 3, 2},
		"ranks [1 2] of 4; [3] came and left":   {0, 3, -3},
		"ranks [2 3] of 4, which came and left": {0, 3, -3, 1, 2, -2},
		"ranks [1] of 4; [2] came and left":     {0, 2, -2, 3, -3, 3},
		"ranks [3] of 4, which came and left":   {0, 1, 2, 3, -3},
	} {
		r := newRoll(4)
		for _, rank := range steps {
			r.note(max(rank, -rank), rank >= 0)
		}
		require.False(t, r.full(), want)
		require.Equal(t, want, r.absent())
	}
	r := newRoll(20)
	require.Equal(t, "ranks [0 1 2 3 4 5 6 7 8 9] and 10 more of 20", r.absent())
	r = newRoll(1)
	r.note(0, true)
	require.True(t, r.full())
}

// What cannot be is refused at once.
func TestConfig(t *testing.T) {
	for _, test := range []struct {
		field string
		c     Config
	}{
		{"Size", Config{Size: 0}},
		{"Rank", Config{Rank: 2, Size: 2}},
		{"Rank", Config{Rank: -1, Size: 1}},
		{"Name", Config{Size: 1, Name: "../name"}},
		{"Name", Config{Size: 1, Name: strings.Repeat("a", 65)}},
		{"Address, Folder", Config{Size: 2}},
		{"Address, Folder", Config{Size: 2, Address: "localhost:1", Folder: "."}},
		{"Token", Config{Size: 2, Address: "first:1"}},
		{"Token", Config{Size: 2, Address: "0.0.0.0:1"}},
		{"Token", Config{Size: 2, Address: "first:1", Token: "two words"}},
		{"Address", Config{Size: 2, Address: "first", Token: "x"}},
		{"Address", Config{Size: 2, Address: ":1", Token: "x"}},
		{"Address", Config{Size: 2, Address: "first:0", Token: "x"}},
		{"Address", Config{Size: 2, Address: "first:65536", Token: "x"}},
	} {
		_, err := share(t.Context(), test.c)
		var bad *cupool.ConfigError
		require.ErrorAs(t, err, &bad, "%+v", test.c)
		require.Equal(t, test.field, bad.Field, "%+v", test.c)
	}
	value, err := share(t.Context(), Config{Size: 1, Name: "alone"})
	require.NoError(t, err)
	require.Equal(t, "value of alone", string(value))
	failed := errors.New("draw fails")
	_, err = Share(t.Context(), Config{Size: 1}, func() ([]byte, error) { return nil, failed })
	require.ErrorIs(t, err, failed)
}
