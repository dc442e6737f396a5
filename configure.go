package cupool

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Configure changes settings of the allocator and of its pools while they are in use. conf
// is as AllocConf has it, and what it does not name stays. These can change: limit and
// fraction, within those that New was given, which hold again where they are 0, divisions, max_split,
// max_non_split_rounding and garbage_collection_threshold, each also by PyTorch's name; 0
// ends one, and 1 divisions. max_split and max_non_split_rounding mean nothing to virtual memory.
// Blocks that are live keep their size. Config says what is in force.
//
// It fails with a *ConfigError for what ConfigFromEnv refuses and for a setting that cannot
// change and is another, with ErrClosed, with ErrNotPermitted in a function that a stream
// runs, or with what the device says; nothing has changed then. Private pools have no settings
// to change of their own: ErrNotSupported.
func (c *Pool) Configure(conf string) error {
	if err := c.made("configure"); err != nil {
		return err
	}
	if c != c.dev.root {
		return fmt.Errorf("cupool: configure: %s has the settings of its allocator: %w", c.name, ErrNotSupported)
	}
	d := c.dev
	if err := d.outside("configure"); err != nil { // a stream that is closed waits for its functions
		return err
	}
	d.life.mu.Lock()
	defer d.life.mu.Unlock()
	d.mu.Lock() // so that no pool joins with the settings from before
	defer d.mu.Unlock()
	pools := d.open()
	if !slices.Contains(pools, c) { // also where a Close was under way
		return fmt.Errorf("cupool: configure: %w", ErrClosed)
	}
	cfg, err := c.changed(conf)
	if err != nil {
		return err
	}
	var changes []func()
	for _, p := range pools {
		change, err := p.change(cfg)
		if err != nil {
			return err
		}
		changes = append(changes, change)
	}
	for _, change := range changes {
		change()
	}
	return nil
}

// changed returns the allocator's Config as Configure changes it.
func (c *Pool) changed(conf string) (Config, error) {
	table, splits := settings, c.memory == nil
	table.Complete = func(cfg Config) (Config, error) {
		if cfg.MaxSplit == 0 {
			cfg.MaxNonSplitRounding = 0
		}
		rounding := cfg.SegmentRounding
		if c.guards != nil { // which round as no program's Config may
			cfg.SegmentRounding = max(defaultSegmentRounding, cfg.MinBlock)
		}
		cfg, err := cfg.withDefaults()
		cfg.SegmentRounding = rounding
		return cfg, err
	}
	cfg, err := table.Change(c.Config(), conf, map[string]bool{
		"Limit": true, "Fraction": true, "Divisions": true, "GarbageCollectionThreshold": true,
		"MaxSplit": splits, "MaxNonSplitRounding": splits,
	})
	cfg.Limit, cfg.Fraction = within(cfg.Limit, c.cfg.Limit), within(cfg.Fraction, c.cfg.Fraction)
	return cfg, err
}

// change returns what changes a pool's settings to those of the allocator's that all pools share.
func (c *Pool) change(to Config) (func(), error) {
	before, cfg := c.Config(), to
	if c != c.dev.root {
		cfg = before
		cfg.Divisions, cfg.classes, cfg.classed, cfg.GarbageCollectionThreshold = to.Divisions, to.classes, to.classed, to.GarbageCollectionThreshold
		if c.memory == nil {
			cfg.MaxSplit, cfg.MaxNonSplitRounding = to.MaxSplit, to.MaxNonSplitRounding
		}
	}
	limit, err := limitOf(c.driver, to.Limit, to.Fraction)
	threshold, e := thresholdOf(c.driver, min(c.budget.Limit, limit), cfg.GarbageCollectionThreshold)
	if err = errors.Join(err, e); err != nil {
		return nil, c.dev.failed(fmt.Errorf("cupool: reading the size of %s: %w", c.driver.Name(), err))
	}
	return func() {
		if cfg.Limit != before.Limit || cfg.Fraction != before.Fraction {
			if limit == math.MaxInt64 {
				limit = 0
			}
			c.dev.budget.SetCeiling(limit)
		}
		heaps, unlock := c.heaps.lockAll()
		defer unlock()
		p, now := &c.space.Policy, cfg.policy(c.space.Policy.NoSplit)
		p.MaxSplit, p.MaxNonSplitRounding, p.SharedSegment = now.MaxSplit, now.MaxNonSplitRounding, now.SharedSegment
		c.collectFrom(threshold)
		c.tuned.Store(&cfg)
		for _, h := range heaps { // a block in a magazine serves the size that it was made for
			h.UnhomeAll()
		}
	}, nil
}

// within returns a limit within another one; 0 is none.
func within[T int64 | float64](limit, most T) T {
	if most > 0 && (limit == 0 || limit > most) {
		return most
	}
	return limit
}
