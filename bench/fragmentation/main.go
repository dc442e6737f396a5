// Fragmentation prints the table of docs/fragmentation.md: what the recorded
// programs of bench/testdata/traces reserve of what they request, on segments, on
// virtual memory and by a plan, beside what PyTorch reserved for them.
//
//	go run ./bench/fragmentation [-svg PICTURE] [TRACE...]
//	go run ./bench/fragmentation -without REGEXP
//
// PICTURE has a bar for each of PyTorch's two allocators and for cupool with virtual
// memory. The second form prints what is lost, on these programs and on made-up ones, without
// each rule of placement and reclaim whose name matches; "." for all takes a quarter of an hour.
//
// It runs in the repository's root, on any machine, and takes a few minutes. The
// figures are what "cupool replay -json" prints.
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

const traces = "bench/testdata/traces"

var backings = []string{"segments", "vmm", "planned"}

func main() {
	var rules *regexp.Regexp
	flag.Func("without", "print what is lost without each rule whose name matches the regular `expression`", func(s string) (err error) {
		rules, err = regexp.Compile(s)
		return err
	})
	svg := flag.String("svg", "", "draw the ratios into this `file`, whose name ends in .svg or .png")
	flag.Parse()
	err := error(nil)
	if rules != nil {
		err = runAblation(rules, os.Stdout)
	} else {
		err = run(flag.Args(), *svg, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fragmentation: %v\n", err)
		os.Exit(1)
	}
}

// A program is a row: PyTorch's ratios of reserved to used, and cupool's replays.
type program struct {
	name                  string
	byDefault, expandable float64
	replays               map[string]replay // by backing
}

// replay is a line of "cupool replay -json".
type replay struct {
	Trace            string
	Events           int
	PeakRequested    int64 `json:"peak_requested_bytes"`
	Ratio            float64
	DriverUsModelled float64 `json:"driver_us_modelled"`
}

// run prints the rows of the traces with these names, or of all, and draws them into
// the file picture, if it has a name.
func run(names []string, picture string, out io.Writer) error {
	rows, err := readPrograms(names)
	if err != nil {
		return err
	}
	for _, backing := range backings {
		if err := replayAll(backing, rows); err != nil {
			return err
		}
	}
	fmt.Fprint(out, "| trace | events | peak requested | PyTorch default | expandable segments | cupool, segments | virtual memory | planned | driver, ms: segments | virtual memory | planned |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	logs := make([]float64, 2+len(backings))
	for _, p := range rows {
		first := p.replays[backings[0]]
		fmt.Fprintf(out, "| %s | %d | %.2f GiB", p.name, first.Events, float64(first.PeakRequested)/(1<<30))
		ratios := []float64{p.byDefault, p.expandable}
		for _, b := range backings {
			ratios = append(ratios, p.replays[b].Ratio)
		}
		for i, r := range ratios {
			fmt.Fprintf(out, " | %.3f", r)
			logs[i] += math.Log(r)
		}
		for _, b := range backings {
			fmt.Fprintf(out, " | %.1f", p.replays[b].DriverUsModelled/1000)
		}
		fmt.Fprintln(out, " |")
	}
	fmt.Fprint(out, "| geometric mean | |")
	for _, sum := range logs {
		fmt.Fprintf(out, " | %.3f", math.Exp(sum/float64(len(rows))))
	}
	if _, err = fmt.Fprintln(out, " | | | |"); err != nil || picture == "" {
		return err
	}
	return draw(rows, picture)
}

// readPrograms reads PyTorch's figures of the programs with these names, or of all.
func readPrograms(names []string) (rows []program, err error) {
	f, err := os.Open(filepath.Join(traces, "pytorch.csv"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, line := range lines[1:] {
		if len(names) > 0 && !slices.Contains(names, line[0]) {
			continue
		}
		var bytes [4]float64
		for i, text := range line[1:] {
			if bytes[i], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, err
			}
		}
		rows = append(rows, program{line[0], bytes[0] / bytes[1], bytes[2] / bytes[3], map[string]replay{}})
	}
	if len(rows) == 0 || len(names) > len(rows) {
		return nil, fmt.Errorf("%s has not all of %q", traces, names)
	}
	return rows, nil
}

// replayAll has cupool replay the traces.
func replayAll(backing string, rows []program) error {
	args := []string{"run", "./cmd/cupool", "replay", "-json", "-backing", backing}
	for _, p := range rows {
		args = append(args, filepath.Join(traces, p.name+".trace.gz"))
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	lines, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	d := json.NewDecoder(bytes.NewReader(lines))
	for _, p := range rows {
		var r replay
		if err := d.Decode(&r); err != nil {
			return err
		}
		p.replays[backing] = r
	}
	return nil
}
