package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/cupool/cupool/dist"
)

// A group is the ranks that train one network, of which this process has some,
// each with a device of its own.
type group struct {
	gpus       int    // ranks of this process; 0: not a group
	nodes      int    // processes like this one
	node       int    // the number of this one
	rendezvous string // where the ranks find each other; empty: they are all in this process
	comm       string // what moves gradients: host or nccl
	bucket     int64  // bytes of gradients that are reduced at once; 0: dist's usual sizes
	local      int    // the device of the first rank here, from the one that is named
}

// alone reports whether the training has no group: no rank is told from others.
func (g *group) alone() bool { return g.gpus == 0 }

// size is the number of all ranks.
func (g *group) size() int { return max(g.gpus, 1) * max(g.nodes, 1) }

// share is that of one of this process's ranks.
func (g *group) share(i int) share { return share{g.node*g.gpus + i, g.size()} }

// fromLauncher takes what torchrun, Slurm or Kubernetes tells each process, a
// process being one rank: unless flags say who is there, or nothing was told. A
// rendezvous of the flags counts.
func (g *group) fromLauncher() error {
	if g.gpus != 0 || g.nodes != 0 || g.node >= 0 {
		return nil
	}
	told, err := dist.FromEnv()
	if err != nil || told.Size < 2 {
		return err // or one process is all
	}
	g.gpus, g.nodes, g.node, g.local = 1, told.Size, told.Rank, told.LocalRank
	g.rendezvous = cmp.Or(g.rendezvous, told.Address)
	return nil
}

// complete checks the values and fills in what depends on others. The default of
// node is -1.
func (g *group) complete(device string) error {
	if err := g.fromLauncher(); err != nil {
		return err
	}
	switch {
	case g.gpus < 0 || g.nodes < 0:
		return fmt.Errorf("-gpus %d and -nodes %d must not be negative", g.gpus, g.nodes)
	case g.nodes == 0 && (g.node >= 0 || g.rendezvous != ""):
		return errors.New("-rank and -rendezvous are for several machines: -nodes says how many")
	case g.nodes > 0 && (g.node < 0 || g.node >= g.nodes):
		return fmt.Errorf("-nodes %d needs a -rank from 0 to %d, another one on each machine", g.nodes, g.nodes-1)
	case g.nodes > 1 && g.rendezvous == "":
		return errors.New("-nodes needs -rendezvous HOST:PORT, an address of the machine with -rank 0, the same on all")
	}
	if _, _, err := net.SplitHostPort(g.rendezvous); g.rendezvous != "" && err != nil {
		return fmt.Errorf("-rendezvous %s is not HOST:PORT: %w", g.rendezvous, err)
	}
	if g.nodes > 0 {
		g.gpus = max(g.gpus, 1)
	}
	g.node, g.nodes = max(g.node, 0), max(g.nodes, 1)
	return g.completeComm(device)
}

func (g *group) completeComm(device string) error {
	kind, _, _ := strings.Cut(device, ":")
	host := kind == "host" || kind == ""
	if g.bucket < 0 {
		return fmt.Errorf("-bucket %d must not be negative", g.bucket)
	}
	usual := "nccl"
	if host {
		usual = "host"
	}
	if g.comm == "" && !g.alone() {
		g.comm = usual
	}
	switch {
	case g.comm == "":
	case g.comm != "host" && g.comm != "nccl":
		return fmt.Errorf("-comm is host or nccl, not %q", g.comm)
	case g.comm == "host" && g.nodes > 1:
		return errors.New("several machines need GPUs: NCCL moves what they send each other")
	case g.alone():
		return errors.New("-comm is for several ranks: give -gpus, or -nodes, -rank and -rendezvous")
	case g.comm == "nccl" && host:
		return errors.New("-comm nccl is for GPUs: the host device has -comm host")
	}
	return nil
}

// device names the device of one of this process's ranks: on GPUs they have
// those from the named one on, and a host device each else.
func (g *group) device(name string, i int) string {
	dev, options, _ := strings.Cut(name, ",")
	kind, first, hasFirst := strings.Cut(dev, ":")
	if g.alone() || kind != "cuda" {
		return name
	}
	n, err := strconv.Atoi(cmp.Or(first, "0"))
	if err != nil {
		return name // opening it says what is wrong
	}
	if !hasFirst {
		n = g.local
	}
	name = fmt.Sprintf("cuda:%d", n+i)
	if options != "" {
		name += "," + options
	}
	return name
}
