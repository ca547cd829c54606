package cluster

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := func() Options { return Options{State: "d", Node: NodeFake, FakeNodes: 1} }
	for name, c := range map[string]struct {
		reason string
		change func(*Options)
		want   string // in the error; empty for none
	}{
		"as given":            {"The defaults are fine.", func(*Options) {}, ""},
		"no nodes":            {"A cluster without nodes is wanted where only the API matters.", func(o *Options) { o.FakeNodes = 0 }, ""},
		"no directory":        {"Without a directory nothing could be kept.", func(o *Options) { o.State = "" }, "--state"},
		"port":                {"A port has 16 bits.", func(o *Options) { o.Port = 70000 }, "70000"},
		"nodes":               {"Fewer than none cannot be.", func(o *Options) { o.FakeNodes = -1 }, "--fake-nodes"},
		"kind":                {"A misspelt kind must not pass for the default.", func(o *Options) { o.Node = "reel" }, `"reel"`},
		"real, no scheduler":  {"Nothing would reach the real node.", func(o *Options) { o.Node, o.NoScheduler = NodeReal, true }, "scheduler"},
		"real, no controller": {"Nobody would take its taint away.", func(o *Options) { o.Node, o.NoController = NodeReal, true }, "controller manager"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			c.change(&o)
			err := o.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s Got %v, want an error with %q.", c.reason, err, c.want)
			}
		})
	}
}
