// Package results reads what Go's benchmarks print.
//
// golang.org/x/perf/benchfmt reads the same format, but x/perf in go.mod would
// raise the version of the protobufs that tensor needs, and with it what every
// program that uses this module has to build.
package results

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Results are benchmarks' results and the lines that say where they come from.
type Results struct {
	values   map[Metric][]float64
	settings map[string]string
}

// Metric is one column of one benchmark.
type Metric struct {
	Name  string // without "Benchmark" and the number of processors
	Procs int    // processors or threads
	Unit  string
}

// Value sums up several results of one metric.
type Value struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

var (
	setting = regexp.MustCompile(`^([a-z][a-z0-9-]*):\s+(.+)$`)
	procs   = regexp.MustCompile(`-(\d+)$`)
)

// ReadFiles reads all results in files.
func ReadFiles(names ...string) (*Results, error) {
	r := &Results{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = r.read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// read adds what benchmarks printed. Lines that are neither results nor
// settings are skipped, as other things are printed in between. A line may have
// 64 KiB. Reading allocates at most 64 KiB and 256 bytes for each byte.
func (r *Results) read(in io.Reader) error {
	if r.values == nil {
		r.values, r.settings = map[Metric][]float64{}, map[string]string{}
	}
	scanner := bufio.NewScanner(in)
	n := 1
	for ; scanner.Scan(); n++ {
		line := scanner.Text()
		if s := setting.FindStringSubmatch(line); s != nil {
			r.settings[s[1]] = s[2]
			continue
		}
		if strings.HasPrefix(line, "--- FAIL") {
			return fmt.Errorf("line %d: a benchmark failed: %s", n, line)
		}
		if err := r.add(strings.Fields(line)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

// add adds a line: a name, the number of runs, and values with their units.
func (r *Results) add(fields []string) error {
	if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
		return nil
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return nil // a sentence that begins with Benchmark
	}
	m := Metric{Name: strings.TrimPrefix(fields[0], "Benchmark"), Procs: 1}
	if p := procs.FindStringSubmatch(m.Name); p != nil {
		m.Name = strings.TrimSuffix(m.Name, p[0])
		m.Procs, _ = strconv.Atoi(p[1]) // digits
	}
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		m.Unit = fields[i+1]
		r.values[m] = append(r.values[m], v)
	}
	return nil
}

// Setting returns what the results say of their making: goos, cpu, ….
func (r *Results) Setting(key string) string { return r.settings[key] }

// Find sums up the results of a metric, nil where there are none. Without
// Procs it is what was measured on the most processors, as it is on all of
// them the same when the benchmark is not parallel.
func (r *Results) Find(m Metric) *Value {
	if m.Procs == 0 {
		for other := range r.values {
			if other.Name == m.Name && other.Unit == m.Unit {
				m.Procs = max(m.Procs, other.Procs)
			}
		}
	}
	values := slices.Sorted(slices.Values(r.values[m]))
	if len(values) == 0 {
		return nil
	}
	n := len(values)
	return &Value{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}
