package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
)

// fewSamples has a network learn from next to nothing: a few images again and
// again.
func fewSamples(t *testing.T) []string {
	dir := t.TempDir()
	require.NoError(t, training.WriteSubset(dir, 10, 10))
	return []string{"-data", dir, "-train-samples", "10", "-batch", "10", "-shift", "0"}
}

// Every network learns in every machine, whose losses agree where no random
// numbers are drawn on the way, and leaves as much memory live as it had.
func TestEveryNetLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	onOneProcessor(t)
	for _, c := range []struct {
		net   string
		args  []string
		drops bool // has dropout
	}{
		{net: "mlp", args: []string{"-epochs", "8", "-optimizer", "adam"}},
		{net: "convnet", args: []string{"-epochs", "20", "-lr", "0.0001"}, drops: true},
		{net: "resnet", args: []string{"-epochs", "8", "-optimizer", "adam"}},
	} {
		t.Run(c.net, func(t *testing.T) {
			args := append(append(fewSamples(t), "-net", c.net), c.args...)
			reports := map[string]report{}
			for _, vm := range []string{"pool", "tape"} {
				r := runReport(t, append(args, "-vm", vm)...)
				require.Equal(t, c.net, r.Net)
				require.Less(t, r.LossLast, 0.8*r.LossFirst, vm)
				require.Zero(t, r.LeakedBlocks)
				reports[vm] = r
			}
			pool, tape := reports["pool"], reports["tape"]
			require.Equal(t, pool.LiveBytesFirst, pool.LiveBytesLast)
			if !c.drops {
				require.Equal(t, tape.LossFirst, pool.LossFirst)
				require.InEpsilon(t, tape.LossLast, pool.LossLast, 1e-3)
				require.Equal(t, tape.TestAccuracy, pool.TestAccuracy)
			}
		})
	}
}

// Running statistics are those of the network that was trained.
func TestResnetEvaluatesWithWhatItLearned(t *testing.T) {
	o, err := parse([]string{"-net", "resnet", "-batch", "2"}, t.Output())
	require.NoError(t, err)
	trained, err := o.net.build(o, o.Random(training.ForWeights), nil)
	require.NoError(t, err)
	tested, err := o.net.build(o, nil, trained)
	require.NoError(t, err)
	require.Len(t, trained.norms, 15)
	mean, variance := trained.norms[3].Stats()
	require.NoError(t, mean.Memset(float32(2)))
	require.NoError(t, variance.Memset(float32(3)))
	require.NoError(t, tested.learned(trained))
	mean, variance = tested.norms[3].Stats()
	require.Subset(t, []float32{2}, mean.Data())
	require.Subset(t, []float32{3}, variance.Data())
	require.Nil(t, tested.loss)
	require.Equal(t, trained.weights[0].Value(), tested.weights[0].Value())
}
