package dist

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/cupool/cupool"
)

// DefaultTimeout is how long a rank waits for another one, where Config.Timeout is
// 0.
const DefaultTimeout = 10 * time.Minute

// Config says which rank of which group a process is. FromEnv fills it in where
// torchrun, Slurm or Kubernetes started the process. The zero value is the only
// rank of a group.
type Config struct {
	Rank      int // from 0 to Size-1, another one in each process
	Size      int // ranks; 0: 1
	LocalRank int // among those of this machine: the number of the GPU to take

	// Rendezvous is HOST:PORT where rank 0 listens and the others find it. A
	// port that is 0 is not allowed, as the others would not know it. An IPv6
	// address stands in brackets. It may be empty in a group of one.
	Rendezvous string
	// Host is the name or address at which the other ranks reach this one. "":
	// the address from which it reaches rank 0.
	Host string
	// Token is a secret of the group. A process that does not know it is
	// refused. It keeps strangers out and does not encrypt. "": whoever
	// reaches the port may join.
	Token string
	// Timeout is how long Join and Connect wait for the other ranks, and each
	// call of a Comm for the next bytes of another rank. 0: DefaultTimeout.
	Timeout time.Duration
	// Logger is told of processes that were refused. nil: nobody is.
	Logger *slog.Logger
}

// checked returns the configuration with its defaults. It fails with a
// *cupool.ConfigError.
func (cfg Config) checked() (Config, error) {
	bad := func(field string, value any, reason string, args ...any) (Config, error) {
		return cfg, &cupool.ConfigError{Field: field, Value: value, Reason: fmt.Sprintf(reason, args...)}
	}
	if cfg.Size == 0 {
		cfg.Size = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Size < 1 || cfg.Size > maxSize:
		return bad("Size", cfg.Size, "a group has 1 to %d ranks", maxSize)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return bad("Rank", cfg.Rank, "ranks of a group of %d are 0 to %d", cfg.Size, cfg.Size-1)
	case cfg.LocalRank < 0:
		return bad("LocalRank", cfg.LocalRank, "it counts from 0")
	case cfg.Timeout < 0:
		return bad("Timeout", cfg.Timeout, "it must not be negative")
	case cfg.Size == 1 && cfg.Rendezvous == "":
		return cfg, nil
	}
	if reason := addressError(cfg.Rendezvous); reason != "" {
		return bad("Rendezvous", strconv.Quote(cfg.Rendezvous), "%s", reason)
	}
	return cfg, nil
}

// addressError says why an address cannot be the rendezvous, or nothing.
func addressError(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "it is HOST:PORT, the same for all ranks, with an IPv6 address in brackets"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "the port is a number from 1 to 65535"
	}
	if host == "" {
		return "the other ranks need the name or address of rank 0's machine before the colon"
	}
	return ""
}
