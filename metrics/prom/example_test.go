package prom_test

import (
	"bufio"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/metrics/prom"
)

// A program serves its metrics at /metrics.
func ExampleNewCollector() {
	pool, err := cupool.New(cupool.Config{Limit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	reg := prometheus.NewRegistry()
	if err := reg.Register(prom.NewCollector(pool)); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	server := httptest.NewServer(mux) // a program calls http.ListenAndServe
	defer server.Close()

	x, err := cupool.NewBuffer[float32](pool, 1_000_000, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()

	answer, err := http.Get(server.URL + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "cupool_live_bytes") || strings.HasPrefix(lines.Text(), "cupool_limit_bytes") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// cupool_limit_bytes{device="host (16 GiB)",pool="default"} 6.7108864e+07
	// cupool_live_bytes{device="host (16 GiB)",kind="large",pool="default"} 4.000256e+06
	// cupool_live_bytes{device="host (16 GiB)",kind="small",pool="default"} 0
}
