package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A net is a kind of network that -net names, with what it is trained on.
type net struct {
	name      string
	about     string   // of the network, for -h
	samples   string   // what it learns from, as "images"
	optimizer string   // its usual one; empty: that of the flag
	lr        float64  // that goes with it; 0: the optimizer's usual one
	batch     int      // its usual one; 0: that of the flag
	fixed     []string // flags that say nothing to it

	describe func(o *options) string

	// open returns the samples to train on and those to test with.
	open func(o *options) (train, test source, err error)

	// build makes a network of batches of o.Batch samples: to train, with
	// weights of rng's numbers, or to test, with the weights of another one. A
	// network to test computes what does not depend on the batch: it drops
	// nothing and normalizes with the statistics of the training.
	build func(o *options, rng *rand.Rand, from *network) (*network, error)
}

// nets are all kinds of networks, the usual one first.
func nets() []*net { return []*net{mlpNet(), convnetNet(), resnetNet(), rnnNet()} }

// netNamed returns a kind of network.
func netNamed(name string) (*net, error) {
	for _, n := range nets() {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("-net is %s, not %q", netNames(" or "), name)
}

// netNames lists the names, with a word before the last.
func netNames(word string) string {
	var names []string
	for _, n := range nets() {
		names = append(names, n.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + word + names[last]
}

// netsAbout says for -h what each is.
func netsAbout() string {
	var about []string
	for _, n := range nets() {
		about = append(about, n.name+", "+n.about)
	}
	return strings.Join(about, "; ")
}
