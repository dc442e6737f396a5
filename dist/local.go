package dist

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// Local returns the ranks of a group in this process, one for each pool: what they
// send each other goes through memory. Results are those of Connect, bit for bit.
//
// Several ranks may have the same pool, but then work on different streams, as
// the work of one waits for that of the others. On devices that do not run Go
// functions (cupool.Launcher), calls wait for the other ranks, and each rank
// needs a goroutine of its own.
//
// A rank that another one keeps waiting fails after 10 minutes. Local fails with
// a *cupool.ConfigError without pools.
func Local(pools ...*cupool.Pool) ([]Comm, error) { return localWithin(DefaultTimeout, pools...) }

func localWithin(timeout time.Duration, pools ...*cupool.Pool) ([]Comm, error) {
	if len(pools) == 0 {
		return nil, &cupool.ConfigError{Field: "pools", Value: pools, Reason: "a group has a rank at least"}
	}
	for i, p := range pools {
		if p == nil {
			return nil, &cupool.ConfigError{Field: fmt.Sprintf("pools[%d]", i), Value: nil, Reason: "a rank's memory needs one"}
		}
	}
	n := len(pools)
	ranks, comms := make([]*hostComm, n), make([]Comm, n)
	pipes := make([]*pipe, n*n)
	for i := range pipes {
		pipes[i] = newPipe()
	}
	for i := range ranks {
		c := newHostComm(i, n, pools[i], timeout)
		for j := range n {
			c.names[j] = fmt.Sprintf("rank %d of this process", j)
			if j != i {
				c.links[j] = memLink{in: pipes[j*n+i], out: pipes[i*n+j]}
			}
		}
		ranks[i], comms[i] = c, c
	}
	new(neighbours).introduce(ranks)
	return comms, nil
}

// neighbours are the ranks of one process, which fail together.
type neighbours struct {
	mu  sync.Mutex
	err error // why
}

func (h *neighbours) introduce(ranks []*hostComm) {
	for _, c := range ranks {
		c.cause = h.said
		c.tell = func(err error) {
			if !h.set(fmt.Errorf("dist: rank %d failed: %w: %w", c.rank, ErrRank, errors.New(err.Error()))) { // it is not theirs
				return
			}
			for _, o := range ranks {
				if o != c {
					go o.fail(h.said())
				}
			}
		}
	}
}

// set keeps the first error.
func (h *neighbours) set(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return false
	}
	h.err = err
	return true
}

func (h *neighbours) said() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
