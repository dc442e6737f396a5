package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cmd/internal/chart"
	"github.com/cupool/cupool/cmd/internal/printable"
	"github.com/cupool/cupool/cmd/internal/progress"
	"github.com/cupool/cupool/cmd/internal/replay"
	"github.com/cupool/cupool/internal/trace"
)

const replayText = `Replays recorded traces of allocations and shows how much memory the allocator
reserves for them, what it asks of the driver and how long it takes, beside
what PyTorch's default allocator would do. A trace is text, an event a line,

  a ID BYTES STREAM   allocate          r ID STREAM      use on another stream
  f ID                free              e EVENT STREAM   record an event
  # ...               a comment         w EVENT STREAM   wait for it

or a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot), with gzip
or without.

With -backing planned the whole trace is one iteration of a program: it is
replayed once to be recorded, its placement is solved, and it is replayed again
by the plan. What is shown is of the second time: its peak with the memory of
the plan, which is held from the start, and the driver's calls from taking that
memory on.

Magazines, in which a program's pool keeps blocks of sizes that recur, are off,
so that the placement depends on the calls alone. With -magazines they are as in a
program, and what they add to the reserved memory is the difference.

With -explain a table follows for each trace that says, reason by reason, where
the bytes are that are reserved and not requested: in live blocks, because sizes
are rounded; freed and not free yet; free, in handles of virtual memory or in
segments that also have a block, in whole handles
or segments; or free for blocks of the other kind or for another stream. Addresses
without memory are no loss. It is about the peak of reserved memory: of the events
at which that grew to within a hundredth of its peak, the one with the most
requested; with a plan, the one at which most is requested.`

// How a replay is measured and drawn.
const (
	replayRepeats = 5   // of which the fastest counts, on the simulated device
	plotParts     = 600 // of a trace, each with its highest and lowest point
)

func replayCommand() *cobra.Command {
	x := replayRun{}
	c := newCommand("replay TRACE...", "replay recorded traces of allocations", replayText, 1, -1, "which trace?")
	fs := c.Flags()
	fs.StringVar(&x.o.Backing, "backing", "", "`where` memory comes from: "+replay.Backings()+" (default: vmm where the device has it)")
	fs.StringVar(&x.o.Strategy, "strategy", "", "`how` free blocks are chosen: "+replay.Strategies()+" (default: best-fit)")
	fs.StringVar(&x.conf, "conf", "", confUsage)
	fs.Func("capacity", "`bytes` of the device, such as 8GiB (default: unlimited)", func(s string) (err error) {
		if x.o.Capacity, err = cupool.ParseBytes(s); err == nil && x.o.Capacity == 0 {
			err = errors.New("a device has at least one byte")
		}
		return err
	})
	fs.IntVar(&x.o.Lag, "lag", 0, "`how` many pieces of work the simulated device is behind the program")
	fs.StringVar(&x.o.Device, "device", "sim", "`device`: sim (no memory behind it), host, or cuda")
	fs.BoolVar(&x.o.Magazines, "magazines", false, "keep blocks of sizes that recur, as a program's pool does; see above")
	fs.BoolVar(&x.json, "json", false, "print a line of JSON for each trace")
	fs.BoolVar(&x.o.Explain, "explain", false, "say where the memory is that is reserved and not requested; see above")
	fs.StringVar(&x.plot, "plot", "", "draw requested, live and reserved memory over time into this `file`, .svg or .png")
	fs.BoolVar(&x.o.Verify, "verify", false, "write contents to the memory and check samples of them (host, cuda)")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return x.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return c
}

// replayRun is what the flags say.
type replayRun struct {
	o          replay.Options
	conf, plot string
	json       bool
}

// run replays traces and reports.
func (x *replayRun) run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	traces, err := readReplay(args, &x.o, x.conf, x.plot)
	if err != nil {
		return err
	}
	var rows []replayRow
	defer func() { // also where a later trace fails
		if !x.json && len(rows) > 0 {
			err = errors.Join(err, printReplays(printable.Writer(stdout), rows))
		}
	}()
	for i, t := range traces {
		bar := progress.New(stderr, fmt.Sprintf("%s (%d/%d)", shortName(t.Name), i+1, len(traces)), "events", len(t.Events)*x.o.Passes())
		x.o.Progress = bar.Add
		r, err := replay.Run(ctx, t, x.o)
		bar.Close() // it is gone when there is a result to print
		if err != nil {
			return err
		} else if r.FailedAllocs > 0 && r.FailedAllocs == int64(t.Blocks) {
			return fmt.Errorf("%s: all %d allocations failed, so that there is nothing to show: the device or its limit is too small (-capacity, -conf): %w", t.Name, t.Blocks, r.Failure)
		}
		if x.json {
			if err := json.NewEncoder(stdout).Encode(r); err != nil {
				return err
			}
		}
		rows = append(rows, replayRow{r, t, replay.TorchModel(t, x.o.Capacity)})
	}
	if x.plot != "" {
		return plotReplays(x.plot, rows)
	}
	return nil
}

// readReplay sets what the flags imply, sees what is wrong with them, and reads the
// traces.
func readReplay(files []string, o *replay.Options, conf, plot string) (traces []*trace.Trace, err error) {
	if o.Config, _, err = config(conf); err != nil {
		return nil, err
	}
	if plot != "" {
		if err := chart.CheckName(plot); err != nil {
			return nil, usageError{err}
		}
		o.Samples = plotParts
	}
	if o.Device == "sim" && !o.Verify {
		o.Repeat = replayRepeats
	}
	if err := o.Check(); err != nil {
		return nil, usageError{err}
	}
	for _, name := range files {
		t, err := trace.ReadFile(name)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	return traces, nil
}

// shortName is a trace's name in tables and plots: that of the file without
// directories and endings.
func shortName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	if name == "" {
		return filepath.Base(file)
	}
	return name
}

// plotReplays draws a panel for each trace.
func plotReplays(file string, rows []replayRow) error {
	var panels []chart.Panel
	for _, r := range rows {
		p := chart.Panel{Title: shortName(r.Trace) + ": " + r.note(), Events: r.Events}
		for _, s := range r.Samples {
			p.Requested = append(p.Requested, chart.Point{Event: s.Event, Bytes: s.Requested})
			p.Live = append(p.Live, chart.Point{Event: s.Event, Bytes: s.Live})
		}
		for _, s := range r.Reserved {
			p.Reserved = append(p.Reserved, chart.Point(s))
		}
		for _, s := range r.torch.Reserved {
			p.Reference = append(p.Reference, chart.Point(s))
		}
		panels = append(panels, p)
	}
	return chart.Write(file, panels)
}
