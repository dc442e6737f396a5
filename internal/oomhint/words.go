package oomhint

// Words are what a program has to set or to call, in its own language. Formats of a size get it
// as an expression of Go and in MiB; those of a pool get its name.
type Words struct {
	Raise        string // which limits, where one is in the way
	OtherProcess string // what to do about another process, beside ending it

	MinSplit, NewPool, Sync, WaitTimeout string

	Limit, OwnLimit, MaxSplit                    string // formats of a size
	Fraction                                     string // format of a number
	EmptyCache, NotIsolated, UseOnOOM, PoolLimit string // formats of a pool

	Virtual      string // virtual memory
	VirtualSplit string // the same without a limit for what is split
	Recording    string // how it becomes known what holds memory
	NoStacks     bool   // stacks of Go say nothing about the program
}

// Speaker is a driver whose program is not in Go.
type Speaker interface{ Words() *Words }

// GoWords are those of a program in Go.
var GoWords = Words{
	Raise: "Limit or Fraction", OtherProcess: "Fraction or Limit in the other process",
	MinSplit: "MinSplit", NewPool: "NewPool", Sync: "Stream.Sync", WaitTimeout: "WaitTimeout",
	Limit: "Limit: %[1]s, or CUPOOL_LIMIT=%[2]dM", OwnLimit: "PoolConfig.Limit: %[1]s", MaxSplit: "MaxSplit: %[1]s",
	Fraction:   "Fraction: %[1]v, or CUPOOL_FRACTION=%[1]v",
	EmptyCache: "EmptyCache of %s", NotIsolated: "PoolConfig.Isolated: false for %s", UseOnOOM: "PoolConfig.UseOnOOM: true for %s",
	PoolLimit: "a PoolConfig.Limit for %s",
	Virtual:   "Backing: cupool.BackingVMM", VirtualSplit: "Backing: cupool.BackingVMM with MaxSplit: 0",
	Recording: "to see which lines hold memory, set Config.History or call Pool.StartHistory",
}

func (s *Settings) words() *Words {
	if s.Words == nil {
		return &GoWords
	}
	return s.Words
}

// size returns what the formats of a size get.
func size(n int64) []any { return []any{Expr(n), mebibytes(n)} }
