package doctor

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
)

// mig is about GPUs that are divided into instances.
func (m Machine) mig() []Line {
	rows, err := m.smi("--query-gpu=", "index", "mig.mode.current")
	if err != nil {
		return []Line{{Advice, "nvidia-smi", "fails, so MIG and processes are not known: " + err.Error(), "install all of the driver; a container has it with NVIDIA_DRIVER_CAPABILITIES=compute,utility"}}
	}
	lines := []Line{{Good, "MIG", "off", ""}}
	for _, row := range rows {
		if row[1] == "Enabled" {
			lines[0] = Line{Advice, "MIG", "on, on GPU " + row[0] + ": a program sees one instance, the first or the one in CUDA_VISIBLE_DEVICES", "nvidia-smi -L lists the instances, and sudo nvidia-smi mig -cgi makes them"}
		}
	}
	return lines
}

// processes is about who holds the GPUs' memory.
func (m Machine) processes() []Line {
	rows, err := m.smi("--query-compute-apps=", "pid", "used_memory", "process_name")
	if err != nil {
		return nil // mig says so
	}
	var lines []Line
	for _, row := range rows {
		holds := "memory of a GPU"
		if mib, err := strconv.ParseInt(row[1], 10, 64); err == nil {
			holds = bytesize.Format(mib<<20) + " of a GPU's memory"
		}
		if row[0] != strconv.Itoa(os.Getpid()) {
			lines = append(lines, Line{Good, "process " + row[0], cmp.Or(row[2], "it") + " holds " + holds, ""})
		}
	}
	if len(lines) == 0 {
		lines = append(lines, Line{Good, "processes", "nvidia-smi knows of none that holds memory of a GPU", ""})
	}
	return lines
}

// smi asks nvidia-smi for a table of some columns, of which the last may have commas. In WSL,
// PATH need not lead to it.
func (m Machine) smi(query string, columns ...string) ([][]string, error) {
	args := []string{query + strings.Join(columns, ","), "--format=csv,noheader,nounits"}
	out, err := m.run("nvidia-smi", args...)
	if err != nil && m.wsl() {
		out, err = m.run(m.Root+"/usr/lib/wsl/lib/nvidia-smi", args...)
	}
	if err != nil {
		says, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return nil, fmt.Errorf("%w %s", err, says)
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) { // nvidia-smi quotes nothing
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		row := strings.SplitN(line, ", ", len(columns)) // a name may be empty
		if len(row) < len(columns) {
			return nil, fmt.Errorf("wrong number of fields: %s", line)
		}
		rows = append(rows, row)
	}
	return rows, nil
}
