package chart

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // its metrics are the controller's
	controllermetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/observe"
	"github.com/radial-project/radial/internal/telemetry"
)

var update = flag.Bool("update", false, "write the table of metrics into docs/operate.md")

// described are all metrics that exist, by name, as their help says.
type metric struct{ name, help, labels string }

var descriptor = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: {[^}]*}, variableLabels: {([^}]*)}`)

func described(t *testing.T, of ...prometheus.Collector) map[string]metric {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		for _, c := range of {
			c.Describe(descriptions)
		}
	}()
	out := map[string]metric{}
	for d := range descriptions {
		m := descriptor.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("not read: %s", d)
		}
		out[m[1]] = metric{m[1], m[2], m[3]}
	}
	return out
}

func server(t *testing.T) map[string]metric {
	decisions := audit.New(audit.Options{})
	t.Cleanup(func() { _ = decisions.Close(context.Background()) })
	m := telemetry.NewMetrics()
	all, ok := m.Gatherer().(prometheus.Collector)
	if !ok {
		t.Fatal("the registry does not describe its metrics")
	}
	return described(t, all, observe.Collect(nil), decisions)
}

func controller(t *testing.T) map[string]metric {
	all, ok := controllermetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("controller-runtime's registry does not describe its metrics")
	}
	return described(t, all)
}

// check parses an expression and looks whether every metric that it names
// exists, with the labels that it selects and groups by.
func check(t *testing.T, where, expression string, known map[string]metric) {
	t.Helper()
	expression = strings.NewReplacer("$__rate_interval", "5m", "${datasource}", "x").Replace(expression)
	e, err := metricsql.Parse(expression)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expression)
		return
	}
	names := 0
	metricsql.VisitAll(e, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			for _, filters := range e.LabelFilterss {
				var m metric
				for _, f := range filters {
					if f.Label == "__name__" {
						names++
						m = known[f.Value]
						for _, suffix := range []string{"_bucket", "_sum", "_count"} {
							if base, ok := strings.CutSuffix(f.Value, suffix); ok && m.name == "" {
								m = known[base]
							}
						}
						if m.name == "" {
							t.Errorf("%s names the metric %s, which does not exist", where, f.Value)
						}
					}
				}
				for _, f := range filters {
					if f.Label != "__name__" && m.name != "" && !strings.Contains(","+m.labels+",", ","+f.Label+",") {
						t.Errorf("%s: %s has no label %q, only %q", where, m.name, f.Label, m.labels)
					}
				}
			}
		case *metricsql.FuncExpr:
			// The parser knows more functions than Prometheus has.
			if !slices.Contains([]string{"rate", "increase", "histogram_quantile", "absent", "time"}, e.Name) {
				t.Errorf("%s: the function %s", where, e.Name)
			}
		}
	})
	if names == 0 {
		t.Errorf("%s names no metric: %s", where, expression)
	}
}

func known(t *testing.T) map[string]metric {
	all := server(t)
	for name, m := range controller(t) {
		all[name] = m
	}
	return all
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	rule := find(t, render(t, "radial-system", `monitoring: {rules: {enabled: true, labels: {release: p}}}`), "PrometheusRule", "radial")
	if rule.GetLabels()["release"] != "p" {
		t.Errorf("its labels are %v", rule.GetLabels())
	}
	groups, _, _ := unstructured.NestedSlice(rule.Object, "spec", "groups")
	metrics := known(t)
	seen := 0
	for _, g := range groups {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			r := r.(map[string]any)
			seen++
			name, _ := r["alert"].(string)
			check(t, name, fmt.Sprint(r["expr"]), metrics)
			annotations, _ := r["annotations"].(map[string]any)
			if fmt.Sprint(annotations["summary"]) == "" || len(fmt.Sprint(annotations["description"])) < 40 {
				t.Errorf("%s does not say what to do", name)
			}
			if text, err := os.ReadFile("../../docs/operate.md"); err != nil || !strings.Contains(string(text), name) {
				t.Errorf("docs/operate.md does not speak of the alert %s (%v)", name, err)
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d alerts were looked at", seen)
	}
}

func TestDashboard_K50(t *testing.T) {
	t.Parallel()
	config := find(t, render(t, "radial-system", `monitoring: {dashboard: {enabled: true}}`), "ConfigMap", "radial-dashboard")
	text, _, _ := unstructured.NestedString(config.Object, "data", "radial.json")
	var dashboard struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics := known(t)
	ids, rows := map[int]bool{}, map[string]bool{}
	used := map[string]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q has the id of another, or does not fit", p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows[p.Title] = true
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			check(t, "panel "+p.Title, target.Expr, metrics)
			for name := range metrics {
				if strings.Contains(target.Expr, name) {
					used[name] = true
				}
			}
		}
	}
	if !rows["Controller"] {
		t.Error("K-50: the dashboard has no panels of the controller")
	}
	for name := range server(t) {
		if strings.HasPrefix(name, "radial_") && !used[name] && name != "radial_keyset_primary_created_seconds" {
			t.Errorf("no panel shows %s", name)
		}
	}
}

const (
	tableBegin = "<!-- metrics: go test ./test/chart -run TestMetricsAreDocumented -update -->"
	tableEnd   = "<!-- end of metrics -->"
)

// The page for operators lists exactly the metrics that exist.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	var list []metric
	for _, m := range server(t) {
		if strings.HasPrefix(m.name, "radial_") {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("\n| metric | labels | is |\n|---|---|---|\n")
	for _, m := range list {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, strings.ReplaceAll(m.labels, ",", ", "), m.help)
	}
	path := filepath.Join("..", "..", "docs", "operate.md")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), tableBegin)
	table, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s has no place for the metrics", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+tableBegin+b.String()+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != b.String() {
		t.Errorf("%s lists other metrics than exist: run go test ./test/chart -run TestMetricsAreDocumented -update", path)
	}
}
