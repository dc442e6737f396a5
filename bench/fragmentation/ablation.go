package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A table of what each mechanism is good for: all programs are replayed by the allocator
// with a change in its sources. The allocator has magazines, as in a program: without them, some
// rules look better or worse than they are.

// seeds are those that the table is made with. Others judge what was chosen by it.
var seeds = []uint64{1, 2, 3, 4}

// ablation says what a change costs on average, in parts of the whole.
type ablation struct {
	memory, time float64 // over all programs
	most         float64 // memory, of the kind that loses the most
	mostOf       string
	mostTime     float64
	mostTimeOf   string
}

// runAblation prints a row for each change whose rule matches.
func runAblation(match *regexp.Regexp, out io.Writer) error {
	matching := slices.DeleteFunc(changes(), func(c change) bool { return !match.MatchString(c.rule) })
	if len(matching) == 0 {
		return fmt.Errorf("no rule has a name that matches %q", match)
	}
	dir, err := os.MkdirTemp("", "fragmentation")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := writePrograms(dir)
	if err != nil {
		return err
	}
	rows, err := readPrograms(nil)
	if err != nil {
		return err
	}
	for _, p := range rows {
		files = append(files, filepath.Join(traces, p.name+".trace.gz"))
	}
	before := map[string]map[string]replay{}
	for _, backing := range []string{segments, vmm} {
		if before[backing], err = replayChanged(dir, nil, backing, files); err != nil {
			return err
		}
	}
	fmt.Fprint(out, "| rule | becomes | backing | memory, % | driver, % | of one kind: memory | driver |\n|---|---|---|---|---|---|---|\n")
	for _, c := range matching {
		for backing, was := range before {
			if c.backing != "" && c.backing != backing {
				continue
			}
			now, err := replayChanged(dir, c.edits, backing, files)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.rule, c.to, err)
			}
			a := compare(was, now)
			fmt.Fprintf(out, "| %s | %s | %s | %+.2f | %+.1f | %+.2f %s | %+.0f %s |\n", c.rule, c.to, backing, 100*a.memory, 100*a.time, 100*a.most, a.mostOf, 100*a.mostTime, a.mostTimeOf)
		}
	}
	return nil
}

// compare returns what a change costs. Programs of a kind count together as one recorded
// program does.
func compare(was, now map[string]replay) (a ablation) {
	memory, time, n := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		kind, _, _ := strings.Cut(filepath.Base(name), ".")
		kind, _, _ = strings.Cut(kind, "-")
		memory[kind] += math.Log(now[name].Ratio / was[name].Ratio)
		time[kind] += math.Log(now[name].DriverUsModelled / was[name].DriverUsModelled)
		n[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		m, t := math.Expm1(memory[kind]/n[kind]), math.Expm1(time[kind]/n[kind])
		a.memory += m / float64(len(n))
		a.time += t / float64(len(n))
		if a.mostOf == "" || m > a.most {
			a.most, a.mostOf = m, kind
		}
		if a.mostTimeOf == "" || t > a.mostTime {
			a.mostTime, a.mostTimeOf = t, kind
		}
	}
	return a
}

// writePrograms writes the made-up programs to a folder.
func writePrograms(dir string) (files []string, err error) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, seed := range seeds {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
			_, e := z.Write(makeProgram(kind, seed))
			name := filepath.Join(dir, fmt.Sprintf("%s-%d.trace.gz", kind, seed))
			if err = errors.Join(e, z.Close(), os.WriteFile(name, b.Bytes(), 0o600)); err != nil {
				return nil, err
			}
			files = append(files, name)
		}
	}
	return files, nil
}

// replayChanged builds cupool with edits and replays files.
func replayChanged(dir string, edits []edit, backing string, files []string) (map[string]replay, error) {
	overlay, err := writeOverlay(dir, edits)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(dir, "cupool")
	if text, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./cmd/cupool").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	lines, err := exec.Command(program, append([]string{"replay", "-json", "-magazines", "-backing", backing}, files...)...).Output()
	if err != nil {
		return nil, err
	}
	all := map[string]replay{}
	for d := json.NewDecoder(bytes.NewReader(lines)); ; {
		var r replay
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all[r.Trace] = r
	}
}

// edited returns the texts of files with edits, by their names.
func edited(edits []edit) (texts map[string]string, err error) {
	texts = map[string]string{}
	for _, e := range edits {
		if texts[e.file] == "" {
			text, err := os.ReadFile(e.file)
			if err != nil {
				return nil, err
			}
			texts[e.file] = string(text)
		}
		if strings.Count(texts[e.file], e.old) != 1 {
			return nil, fmt.Errorf("%s has %d times %q", e.file, strings.Count(texts[e.file], e.old), e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.new, 1)
	}
	return texts, nil
}

// writeOverlay writes files with edits, and for the go command where they are.
func writeOverlay(dir string, edits []edit) (name string, err error) {
	texts, err := edited(edits)
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for file, text := range texts {
		from, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[from] = to
	}
	b, err := json.Marshal(overlay)
	name = filepath.Join(dir, "overlay.json")
	return name, errors.Join(err, os.WriteFile(name, b, 0o600))
}
