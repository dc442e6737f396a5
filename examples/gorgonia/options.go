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
	net     string
	compare bool
	graph   bool
}

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("gorgonia", flag.ContinueOnError)
	o.Register(fs)
	fs.StringVar(&o.vm, "vm", "pool", "`machine`: pool (gorgoniavm), tape (Gorgonia's, with pool memory in scopes) or stock (Gorgonia's, in Go's memory)")
	fs.StringVar(&o.net, "net", "mlp", "`network`: mlp, or convnet, Gorgonia's example with its optimizer, RMSProp, and its learning rate")
	fs.BoolVar(&o.compare, "compare", false, "have a twin of the network do every step with -vm stock, and report its times too")
	fs.BoolVar(&o.graph, "graph", false, "run the steps as CUDA graphs, where there are any; with -vm pool only")
	err := training.Parse(fs, "Gorgonia trains networks on MNIST as Gorgonia graphs, every value in a cupool.", args, out)
	if err != nil {
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
	switch {
	case !slices.Contains([]string{"pool", "tape", "stock"}, o.vm):
		return fmt.Errorf("-vm is pool, tape or stock, not %q", o.vm)
	case o.net != "mlp" && o.net != "convnet":
		return fmt.Errorf("-net is mlp or convnet, not %q", o.net)
	case o.net == "convnet" && (given["hidden"] || given["optimizer"]):
		return errors.New("-net convnet has its own -hidden layers and -optimizer")
	case o.graph && o.vm != "pool":
		return errors.New("-graph needs -vm pool")
	case o.compare && o.vm == "stock":
		return errors.New("-compare compares other machines with -vm stock")
	}
	if o.net == "convnet" {
		o.Optimizer = "rmsprop"
		if !given["lr"] {
			o.LR = 0.001
		}
	}
	return nil
}

// describe names the network.
func (o *options) describe(pixels int) string {
	if o.net == "convnet" {
		return "Gorgonia's convolutional network"
	}
	return fmt.Sprint("layers ", o.Hidden.Layers(pixels, classes))
}
