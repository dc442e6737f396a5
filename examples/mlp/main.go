// Mlp trains a multi-layer perceptron on MNIST with gorgonia's tensors. All
// tensors, the weights as well as every temporary of every step, live in a
// cupool:
//
//	go run ./examples/mlp                     # a subset of MNIST, built in
//	go run ./examples/mlp -data DIR -hidden 512,256 -optimizer adam
//	go run ./examples/mlp -plan               # steps served by a plan of their memory
//	go run ./examples/mlp -gpus 4             # four ranks, each on a host device of its own
//
// ops.go and model.go have the network's formulas, optim.go the optimizers,
// train.go the steps and epochs, data.go the way of a batch into the pool.
// group.go, rank.go and peers.go have what several GPUs take: which ranks there
// are, what each of them makes, and how they average their gradients. What
// examples/gorgonia does in the same way is in examples/internal/training.
package main

import (
	"context"
	"io"

	"github.com/cupool/cupool/examples/internal/training"
)

func main() { training.Main(run) }

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if err != nil {
		return training.Usage("mlp", err, stderr)
	}
	if o.group.share(0).rank > 0 {
		stdout = io.Discard // the first rank speaks for all
	}
	r, err := train(ctx, o, stdout, stderr)
	return training.Ended("mlp", r, err, o.JSON, stdout, stderr)
}
