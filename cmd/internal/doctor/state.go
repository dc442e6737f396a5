package doctor

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
)

// columns are what nvidia-smi is asked for.
var columns = []string{"index", "name", "memory.free", "memory.total", "persistence_mode", "mig.mode.current", "ecc.mode.current", "compute_mode"}

// scarce is how much free memory is so little that programs fail.
const scarce = 512 << 20

// state is about each GPU's memory and settings, as nvidia-smi tells them.
func (m Machine) state() []Line {
	args := []string{"--query-gpu=" + strings.Join(columns, ","), "--format=csv,noheader,nounits"}
	out, err := m.run("nvidia-smi", args...)
	if err != nil && m.wsl() {
		out, err = m.run(m.path("/usr/lib/wsl/lib/nvidia-smi"), args...)
	}
	if err != nil {
		do := "nvidia-smi comes with the driver: install all of it"
		if m.container() {
			do = containerHint
		}
		why := err.Error()
		if says, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); says != "" {
			why = says
		}
		return []Line{{Advice, "state of the GPU", "not known, as nvidia-smi fails: " + why, do}}
	}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = len(columns)
	rows, err := r.ReadAll()
	if err != nil {
		return []Line{{Advice, "state of the GPU", "nvidia-smi prints something else than was asked for: " + err.Error(), "look at what nvidia-smi -q prints"}}
	}
	var lines []Line
	for _, row := range rows {
		lines = append(lines, stateOf(row)...)
	}
	return lines
}

// stateOf is about one GPU, given the values of columns.
func stateOf(row []string) []Line {
	index, name, free, total, persistence, mig, ecc, compute := row[0], row[1], mib(row[2]), mib(row[3]), row[4], row[5], row[6], row[7]
	gpu := "GPU " + index
	lines := []Line{{Good, gpu, name, ""}}
	memory := Line{Good, gpu + " memory", fmt.Sprintf("%s free of %s", bytesize.Format(free), bytesize.Format(total)), ""}
	switch {
	case total < 0 || free < 0: // on a MIG GPU, or in WSL
		memory.Text = "not known to nvidia-smi"
	case free < scarce:
		memory.Verdict, memory.Do = Advice, "other programs hold the rest: nvidia-smi lists them"
	}
	lines = append(lines, memory)
	lines = append(lines, setting(gpu+" persistence", persistence, "Disabled", Advice, "sudo nvidia-smi -pm 1, or start nvidia-persistenced: programs start a second or more sooner"))
	lines = append(lines, setting(gpu+" MIG", mig, "Enabled", Advice, "each instance is a device of its own (nvidia-smi -L lists them, sudo nvidia-smi mig -cgi makes them): a program sees the first, or the one in CUDA_VISIBLE_DEVICES"))
	lines = append(lines, setting(gpu+" ECC", ecc, "Disabled", Advice, "sudo nvidia-smi -e 1, then restart: errors of the memory are corrected"))
	return append(lines, setting(gpu+" compute mode", compute, "Prohibited", Missing, "sudo nvidia-smi -c 0: no program may use this GPU"))
}

// setting is a line about a setting that has one value to do something about.
func setting(subject, value, bad string, verdict Verdict, do string) Line {
	switch {
	case value == bad:
		return Line{verdict, subject, strings.ToLower(value), do}
	case strings.Contains(value, "N/A") || strings.Contains(value, "Not Supported"):
		return Line{Good, subject, "this GPU has none", ""}
	}
	return Line{Good, subject, strings.ToLower(value), ""}
}

// mib returns bytes, or -1 for what is no number.
func mib(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n << 20
}
