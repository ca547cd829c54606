package config

import (
	"bytes"
	"flag"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	f := flag.NewFlagSet("x", flag.ContinueOnError)
	name, often, on := f.String("a-name", "default", ""), f.Int("often", 1, ""), f.Bool("on", false, "")
	if err := f.Parse([]string{"--often", "2"}); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"P_A_NAME": "given", "P_OFTEN": "3", "P_ON": "", "A_NAME": "another's"}
	lookup := func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
	if err := Environment(f, "P_", lookup); err != nil || *name != "given" || *often != 2 || *on {
		t.Errorf("%q, %d, %t, %v: the command line wins, and what is empty is not given", *name, *often, *on, err)
	}
	f = flag.NewFlagSet("x", flag.ContinueOnError)
	f.Int("often", 1, "")
	f.Bool("on", false, "")
	vars = map[string]string{"P_OFTEN": "seldom", "P_ON": "perhaps"}
	err := Environment(f, "P_", lookup)
	for _, want := range []string{"P_OFTEN", "P_ON"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not name %s", err, want)
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := Logger("warn", "json", &b)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if text := b.String(); strings.Contains(text, "quiet") || !strings.HasPrefix(text, `{"time":`) || !strings.Contains(text, "loud") {
		t.Errorf("it wrote %s", text)
	}
	for _, c := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := Logger(c[0], c[1], &b); err == nil || !strings.Contains(err.Error(), "--log-") {
			t.Errorf("Logger(%q, %q) = %v", c[0], c[1], err)
		}
	}
}
