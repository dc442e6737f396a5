// Package operate_test checks the dashboard and the alert rules of this folder.
package operate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/metrics/internal/metrics"
)

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// dashboard is what of Grafana's JSON is checked.
type dashboard struct {
	Panels []struct {
		ID                       int
		Title, Description, Type string
		GridPos                  struct{ X, Y, W, H int }
		Options                  map[string]json.RawMessage
		Targets                  []struct{ Expr, LegendFormat, RefID string }
	}
	Templating struct{ List []struct{ Name string } }
}

// queries returns those of the dashboard, as Prometheus gets them.
func queries(t *testing.T) (all []string) {
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana.json")), &d))
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for _, x := range p.Targets {
			expr := strings.ReplaceAll(x.Expr, "$__rate_interval", "5m")
			for _, v := range d.Templating.List {
				expr = strings.ReplaceAll(expr, "$"+v.Name, ".*")
			}
			require.NotContains(t, expr, "$", "no such variable")
			all = append(all, expr)
		}
	}
	require.Greater(t, len(all), 10)
	return all
}

// Panels have the options that Grafana's schema asks for, and lie in rows without gaps. (The whole
// schema is in github.com/grafana/grafana-foundation-sdk/go/dashboard, whose UnmarshalJSONStrict takes
// the file; it takes minutes to build.)
func TestPanels(t *testing.T) {
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana.json")), &d))
	bottom, next := 0, 0
	for _, p := range d.Panels {
		options := slices.Sorted(maps.Keys(p.Options))
		switch p.Type {
		case "stat":
			require.Equal(t, []string{
				"colorMode", "graphMode", "justifyMode", "orientation", "percentChangeColorMode", "reduceOptions", "showPercentChange", "textMode", "wideLayout",
			}, options, p.Title)
		case "timeseries":
			require.Equal(t, []string{"legend", "tooltip"}, options, p.Title)
			for name, want := range map[string][]string{"legend": {"calcs", "displayMode", "placement", "showLegend"}, "tooltip": {"mode", "sort"}} {
				var of map[string]any
				require.NoError(t, json.Unmarshal(p.Options[name], &of))
				require.Equal(t, want, slices.Sorted(maps.Keys(of)), p.Title)
			}
		default:
			require.Fail(t, p.Title, "type %q", p.Type)
		}
		if p.GridPos.X == 0 {
			bottom, next = next, next+p.GridPos.H
		}
		require.Equal(t, bottom, p.GridPos.Y, p.Title)
	}
}

// Every metric that is asked for is there.
func TestNames(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metrics.All() {
		known["cupool_"+m.Name] = true
	}
	name := regexp.MustCompile(`\bcupool_\w+`)
	for _, text := range append(queries(t), read(t, "alerts.yaml"), read(t, "alerts_test.yaml")) {
		for _, n := range name.FindAllString(text, -1) {
			require.True(t, known[n], "there is no metric %s", n)
		}
	}
}

// Prometheus' own tool takes the rules, which fire when they should, and all queries of
// the dashboard.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (.ci/run takes it from Debian's package prometheus)")
	}
	asRules := filepath.Join(t.TempDir(), "queries.yaml")
	text := "groups: [{name: dashboard, rules: [\n"
	for i, q := range queries(t) {
		quoted, err := json.Marshal(q)
		require.NoError(t, err)
		text += fmt.Sprintf("{record: 'query:%d', expr: %s},\n", i, quoted)
	}
	require.NoError(t, os.WriteFile(asRules, []byte(text+"]}]\n"), 0o600))
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "rules", asRules}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
