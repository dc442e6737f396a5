package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cmd/internal/chart"
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

With -explain a table follows for each trace that says, reason by reason, where
the bytes are that are reserved and not requested: in live blocks, because sizes
are rounded; freed and not free yet; free, in handles of virtual memory or in
segments that also have a block, at the end of a stitched block, in whole handles
or segments; or free for blocks of the other kind or for another stream. Addresses
without memory are no loss. It is about the peak of reserved memory: of the events
at which that grew to within a hundredth of its peak, the one with the most
requested; with a plan, the one at which most is requested.`

// How a replay is measured and drawn.
const (
	replayRepeats = 5   // of which the fastest counts, on the simulated device
	plotParts     = 600 // of a trace, each with its highest and lowest point
)

// replayOptions are what the command line asks for.
type replayOptions struct {
	replay.Options
	conf  string
	json  bool
	plot  string
	files []string
}

// flags returns the flags that set the options.
func (o *replayOptions) flags() *flag.FlagSet {
	fs := newFlags("replay", replayText, io.Discard)
	fs.StringVar(&o.Backing, "backing", "", "`where` memory comes from: "+replay.Backings()+" (default: vmm where the device has it)")
	fs.StringVar(&o.Strategy, "strategy", "", "`how` free blocks are chosen: "+replay.Strategies()+" (default: best-fit)")
	fs.StringVar(&o.conf, "conf", "", confUsage)
	fs.Func("capacity", "`bytes` of the device, such as 8GiB (default: unlimited)", func(s string) (err error) {
		if o.Capacity, err = cupool.ParseBytes(s); err == nil && o.Capacity == 0 {
			err = errors.New("a device has at least one byte")
		}
		return err
	})
	fs.StringVar(&o.Device, "device", "sim", "`device`: sim (no memory behind it), host, or cuda")
	fs.BoolVar(&o.json, "json", false, "print a line of JSON for each trace")
	fs.BoolVar(&o.Explain, "explain", false, "say where the memory is that is reserved and not requested; see above")
	fs.StringVar(&o.plot, "plot", "", "draw requested, live and reserved memory over time into this `file`, .svg or .png")
	fs.BoolVar(&o.Verify, "verify", false, "write contents to the memory and check samples of them (host, cuda)")
	fs.BoolVar(&o.Magazines, "magazines", false, "keep lock-free magazines as programs do; the results then vary a little")
	fs.Usage = func() {}
	return fs
}

// complete takes the traces and what the flags imply, and returns what is wrong
// with them.
func (o *replayOptions) complete(files []string) (err error) {
	if o.Config, _, err = config(o.conf); err != nil {
		return err
	}
	if o.files = files; len(files) == 0 {
		return errors.New("which trace?")
	}
	if o.plot != "" {
		if err := chart.CheckName(o.plot); err != nil {
			return err
		}
		o.Samples = plotParts
	}
	if o.Device == "sim" && !o.Verify {
		o.Repeat = replayRepeats
	}
	return o.Check()
}

// parseReplay reads the command line. What is wrong with it has been printed
// when it returns errUsage.
func parseReplay(args []string, stderr io.Writer) (*replayOptions, error) {
	o := &replayOptions{}
	fs := o.flags()
	err := fs.Parse(args)
	if err == nil {
		err = o.complete(fs.Args())
	}
	switch {
	case err == nil:
		return o, nil
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stderr, "usage: cupool replay [flags] TRACE...\n\n%s\n\n", replayText)
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return nil, err
	case errors.Is(err, cupool.ErrNotSupported):
		return nil, err
	}
	fmt.Fprintf(stderr, "cupool replay: %v (cupool replay -h tells more)\n", err)
	return nil, errUsage
}

// readTraces reads the files.
func readTraces(files []string) (traces []*trace.Trace, err error) {
	for _, name := range files {
		t, err := trace.ReadFile(name)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	return traces, nil
}

// runReplay replays traces and reports.
func runReplay(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseReplay(args, stderr)
	if err != nil {
		return err
	}
	traces, err := readTraces(o.files)
	if err != nil {
		return err
	}
	var rows []replayRow
	for i, t := range traces {
		r, err := replayOne(ctx, t, o, fmt.Sprintf("%s (%d/%d)", shortName(t.Name), i+1, len(traces)), stderr)
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		} else if err != nil {
			return err
		}
		if o.json {
			if err := json.NewEncoder(stdout).Encode(r); err != nil {
				return err
			}
		}
		rows = append(rows, replayRow{r, t, replay.TorchModel(t, o.Capacity)})
	}
	if !o.json {
		if err := printReplays(stdout, rows); err != nil {
			return err
		}
	}
	if o.plot != "" {
		return plotReplays(o.plot, rows)
	}
	return nil
}

// replayOne replays a trace, with a bar that is gone when there is a result to
// print.
func replayOne(ctx context.Context, t *trace.Trace, o *replayOptions, name string, stderr io.Writer) (replay.Result, error) {
	bar := progress.New(stderr, name, "events", len(t.Events)*o.Passes())
	defer bar.Close()
	measured := o.Options
	measured.Progress = bar.Add
	return replay.Run(ctx, t, measured)
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
		p := chart.Panel{
			Title: shortName(r.Trace), Note: r.note(), Events: r.Events,
			PeakRequested: r.PeakRequestedBytes, PeakReserved: r.PeakReservedBytes,
		}
		if r.FailedAllocs > 0 { // then the trace's peak was not reached
			p.PeakRequested = 0
			for _, s := range r.Samples {
				p.PeakRequested = max(p.PeakRequested, s.Requested)
			}
		}
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
