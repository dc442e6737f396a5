package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/cupool/cupool/examples/internal/training"
)

// options are what the command line asks for.
type options struct {
	training.Options
	vm      string
	net     *net
	compare bool
	graph   bool

	cell  string // of -net rnn
	steps int    // of a sequence
}

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	var name string
	fs := flag.NewFlagSet("gorgonia", flag.ContinueOnError)
	o.Register(fs)
	fs.StringVar(&o.vm, "vm", "pool", "`machine`: pool (gorgoniavm), tape (Gorgonia's, with pool memory in scopes) or stock (Gorgonia's, in Go's memory)")
	fs.StringVar(&name, "net", nets()[0].name, "`network`: "+netsAbout())
	fs.BoolVar(&o.compare, "compare", false, "have a twin of the network do every step with -vm stock, and report its times too")
	fs.BoolVar(&o.graph, "graph", false, "run the steps as CUDA graphs, where there are any; with -vm pool only")
	fs.StringVar(&o.cell, "cell", "lstm", "`unit` of -net rnn: lstm or gru")
	fs.IntVar(&o.steps, "steps", 32, "`characters` of a sequence of -net rnn")
	err := training.Parse(fs, "Gorgonia trains networks as Gorgonia graphs, every value in a cupool.", args, out)
	if err != nil {
		return nil, err
	}
	if o.net, err = netNamed(name); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return o, o.complete(given)
}

// complete checks the values and fills in what depends on others.
func (o *options) complete(given map[string]bool) error {
	if err := o.Complete(); err != nil {
		return err
	}
	for _, flag := range o.net.fixed {
		if given[flag] {
			return fmt.Errorf("-net %s takes no -%s", o.net.name, flag)
		}
	}
	switch {
	case !slices.Contains([]string{"pool", "tape", "stock"}, o.vm):
		return fmt.Errorf("-vm is pool, tape or stock, not %q", o.vm)
	case o.graph && o.vm != "pool":
		return errors.New("-graph needs -vm pool")
	case o.compare && o.vm == "stock":
		return errors.New("-compare compares other machines with -vm stock")
	}
	if o.net.name == "rnn" {
		if err := o.checkRNN(); err != nil {
			return err
		}
	}
	o.useUsual(given)
	return nil
}

// useUsual has the network's own ways where the command line says nothing.
func (o *options) useUsual(given map[string]bool) {
	if o.net.batch > 0 && !given["batch"] {
		o.Batch = o.net.batch
	}
	if o.net.optimizer == "" || given["optimizer"] {
		return
	}
	o.Optimizer = o.net.optimizer
	if !given["lr"] {
		o.LR = o.net.lr
	}
}
