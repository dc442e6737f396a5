package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/bench/internal/results"
)

// TestMain lets this binary be the program, for the tests of peers.sh.
func TestMain(m *testing.M) {
	if os.Getenv("CUPOOL_TEST_AS_TABLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

var files = []string{"-pytorch", "testdata/pytorch.txt", "-async", "testdata/async.txt", "testdata/ours.txt"}

// cells returns the table's line that begins with work.
func cells(t *testing.T, table, work string) []string {
	t.Helper()
	for l := range strings.Lines(table) {
		if strings.HasPrefix(l, "| "+work) {
			fields := strings.Split(strings.Trim(strings.TrimSpace(l), "|"), "|")
			for i := range fields {
				fields[i] = strings.TrimSpace(fields[i])
			}
			return fields[1:]
		}
	}
	require.Fail(t, "no such line", work)
	return nil
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(files, &out))
	table := out.String()
	first, _, _ := strings.Cut(table, "\n")
	require.Equal(t, "2026-11-21; NVIDIA H200, 580.159; Intel(R) Xeon(R) Processor; PyTorch 2.11.0+cu130; cudaMallocAsync, CUDA 13.0. Medians in ns, with the least and the largest.", first)
	for work, want := range map[string][]string{
		"allocate + free, cached, 512 B":                                      {"22 (21–24)", "365 (360–370)", "16.6", "655", "29.8", "25", "met"},
		"1,000 live blocks of random sizes, a step; ours with virtual memory": {"531", "850", "1.6", "2,109", "4", "100", "**missed**"},
		"the same; ours with segments":                                        {"", "850", "", "2,109", "", "100", ""},
		"allocate + free 1 MiB on one stream, wall ÷ pairs: 1 goroutine":      {"38", "1,500", "39.4", "", "", "", ""},
		"16 goroutines":                                     {"4.5", "2,610", "580", "", "", "5", "met"},
		"driver calls of a hit":                             {"0", "", "", "", "", "0", "met"},
		"Go allocations of a hit":                           {"1", "", "", "", "", "0", "**missed**"},
		"Trim of 1,000 cached segments, without the driver": {"1,069,365", "", "", "", "", "100,000", "**missed**"},
		"the driver's part of that Trim":                    {"3,478,141", "", "", "", "", "", ""},
		"ruler: a mutex pair":                               {"14.4", "", "", "", "", "", ""},
	} {
		require.Equal(t, want, cells(t, table, work), work)
	}
}

func value(median, least, largest float64) *results.Value {
	return &results.Value{Median: median, Min: least, Max: largest}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(append([]string{"-format", "json"}, files...), &out))
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Len(t, r.Rows, len(rows))
	goal, met := 25.0, true
	require.Equal(t, line{
		Work: "allocate + free, cached, 512 B", Ours: value(22, 21, 24), PyTorch: value(365, 360, 370), Async: value(655, 655, 655),
		OverPyTorch: 16.59, OverAsync: 29.77, Goal: &goal, Met: &met,
	}, r.Rows[0])
}

// Without the peers their columns are empty, and ours may be in several files.
func TestOursAlone(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"testdata/ours.txt", "testdata/ours.txt"}, &out))
	require.Equal(t, []string{"22 (21–24)", "", "", "", "", "25", "met"}, cells(t, out.String(), "allocate + free, cached, 512 B"))
}

// No two rows compare the same.
func TestRowsDiffer(t *testing.T) {
	seen := map[[2]results.Metric]string{}
	for _, r := range rows {
		pair := [2]results.Metric{r.ours, r.peer}
		require.Empty(t, seen[pair], r.work)
		seen[pair] = r.work
	}
}

func TestErrors(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, run(nil, &out), "no file with our results")
	require.ErrorContains(t, run([]string{"-format", "html", "testdata/ours.txt"}, &out), `-format is markdown or json, not "html"`)
	require.ErrorIs(t, run([]string{"testdata/none.txt"}, &out), os.ErrNotExist)
	require.Empty(t, out.String())
}
