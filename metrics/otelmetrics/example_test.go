package otelmetrics_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/metrics/otelmetrics"
)

// A program gives its MeterProvider, which exports to where it wants.
func ExampleRegister() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	reader := sdk.NewManualReader() // a program takes a sdk.PeriodicReader with an exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	registration, err := otelmetrics.Register(provider, pool)
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Unregister()

	x, err := cupool.NewBuffer[float32](pool, 1_000_000, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()

	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		log.Fatal(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "cupool.grown" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	// Output:
	// cupool.grown 1
}
