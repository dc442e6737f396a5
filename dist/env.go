package dist

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/cupool/cupool"
)

// maxSize is the largest group that FromEnv believes in.
const maxSize = 1 << 16

// slurmPort is where rank 0 listens in Slurm's jobs, without MASTER_PORT, plus the
// job's number modulo 10,000, so that two jobs on one machine do not meet.
const slurmPort = 20_000

// A Launch is what a launcher tells a process.
type Launch struct {
	Rank      int    // from 0 to Size-1, another one in each process
	Size      int    // ranks; 0: nothing was told
	LocalRank int    // among those of this machine: the number of the GPU to take
	Address   string // HOST:PORT of rank 0; "" where nothing was told, or of a single rank
	Token     string // the secret of the group
}

// FromEnv returns what the launcher of this process has put into its environment.
// Of the variables for the same thing, the first that is set counts:
//
//   - Rank: RANK, SLURM_PROCID, JOB_COMPLETION_INDEX
//   - Size: WORLD_SIZE, SLURM_NTASKS
//   - LocalRank: LOCAL_RANK, SLURM_LOCALID
//   - Address: MASTER_ADDR, or else the first machine of SLURM_STEP_NODELIST,
//     of SLURM_JOB_NODELIST, or SLURM_LAUNCH_NODE_IPADDR; and MASTER_PORT, or
//     else a port made from SLURM_JOB_ID. torchrun listens on MASTER_PORT itself
//     where it sets TORCHELASTIC_USE_AGENT_STORE=True: it is the next one then
//   - Token: CUPOOL_DIST_TOKEN, which no launcher sets
//
// torchrun and the training operators of Kubernetes set the first of each, srun
// those of Slurm, and an indexed job of Kubernetes JOB_COMPLETION_INDEX.
//
// Variables that are empty count as not set. Without RANK, SLURM_PROCID and
// WORLD_SIZE there is no launcher. FromEnv fails with a *cupool.ConfigError that
// names the variable.
func FromEnv() (Launch, error) {
	l := Launch{Token: os.Getenv("CUPOOL_DIST_TOKEN")}
	if first("RANK", "SLURM_PROCID", "WORLD_SIZE") == "" {
		return l, nil
	}
	rank, size := first("RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"), first("WORLD_SIZE", "SLURM_NTASKS")
	switch {
	case size == "":
		return l, missing("WORLD_SIZE", rank)
	case rank == "":
		return l, missing("RANK", size)
	}
	if err := l.numbers(rank, size, first("LOCAL_RANK", "SLURM_LOCALID")); err != nil {
		return l, err
	}
	host, err := masterHost()
	if err != nil {
		return l, err
	}
	port, err := masterPort()
	if err != nil {
		return l, err
	}
	return l, l.meetAt(host, port)
}

func masterPort() (string, error) {
	port, job := strings.TrimSpace(os.Getenv("MASTER_PORT")), os.Getenv("SLURM_JOB_ID")
	if n, err := strconv.Atoi(port); err == nil && os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" {
		return strconv.Itoa(n + 1), nil
	}
	if port != "" || job == "" {
		return port, nil
	}
	n, err := strconv.ParseUint(job, 10, 64)
	if err != nil {
		return "", badVariable("SLURM_JOB_ID", job, "it is a number: set MASTER_PORT")
	}
	return strconv.FormatUint(slurmPort+n%10_000, 10), nil
}

// masterHost returns the machine of rank 0.
func masterHost() (string, error) {
	if host := os.Getenv("MASTER_ADDR"); host != "" {
		return host, nil
	}
	for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} {
		if list := os.Getenv(name); list != "" {
			host, ok := firstHost(list)
			if !ok {
				return "", badVariable(name, list, "it is a list such as node[01-03,7],other: set MASTER_ADDR")
			}
			return host, nil
		}
	}
	return os.Getenv("SLURM_LAUNCH_NODE_IPADDR"), nil
}

// firstHost returns the first name of a list such as "a[01-03,7]b,c".
func firstHost(list string) (string, bool) {
	var name strings.Builder
	for rest := list; rest != ""; {
		at := strings.IndexAny(rest, "[,]")
		if at < 0 {
			name.WriteString(rest)
			break
		}
		name.WriteString(rest[:at])
		if rest[at] == ',' {
			break
		}
		end := strings.IndexByte(rest, ']')
		if rest[at] == ']' || end < at {
			return "", false
		}
		number, _, _ := strings.Cut(rest[at+1:end], ",")
		number, _, _ = strings.Cut(number, "-")
		if _, err := strconv.ParseUint(number, 10, 64); err != nil {
			return "", false
		}
		name.WriteString(number)
		rest = rest[end+1:]
	}
	return name.String(), name.Len() > 0
}

// numbers reads the three numbers of a rank. LocalRank may be missing.
func (l *Launch) numbers(rank, size, local string) error {
	for _, v := range []struct {
		name string
		to   *int
	}{{rank, &l.Rank}, {size, &l.Size}, {local, &l.LocalRank}} {
		if v.name == "" {
			continue
		}
		text := os.Getenv(v.name)
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 {
			return badVariable(v.name, text, "it is a number from 0")
		}
		*v.to = n
	}
	switch {
	case l.Size < 1 || l.Size > maxSize:
		return badVariable(size, os.Getenv(size), fmt.Sprintf("a group has 1 to %d ranks", maxSize))
	case l.Rank >= l.Size:
		return badVariable(rank, os.Getenv(rank), fmt.Sprintf("ranks of a group of %d (%s) are 0 to %d", l.Size, size, l.Size-1))
	}
	return nil
}

// meetAt sets Address.
func (l *Launch) meetAt(host, port string) error {
	host = strings.Trim(host, "[]")
	switch {
	case host == "" && port == "" && l.Size == 1:
		return nil
	case host == "":
		return badVariable("MASTER_ADDR", "", "it is the name or address of rank 0's machine")
	case port == "":
		return badVariable("MASTER_PORT", "", "it is the port on which rank 0 listens")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return badVariable("MASTER_PORT", port, "it is a number from 1 to 65535")
	}
	l.Address = net.JoinHostPort(host, strconv.Itoa(n))
	return nil
}

// first returns the first of the names that is set, or nothing.
func first(names ...string) string {
	for _, name := range names {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

func missing(name, because string) error {
	return badVariable(name, "", fmt.Sprintf("it is not set, and %s=%s is", because, os.Getenv(because)))
}

func badVariable(name, value, reason string) error {
	return &cupool.ConfigError{Field: name, Value: strconv.Quote(value), Reason: reason}
}
