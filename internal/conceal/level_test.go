package conceal

import (
	"log/slog"
	"testing"
)

// A level below debug would have client-go log the bodies of requests, and so
// what is written into Secrets.
func TestLogLevel_C100(t *testing.T) {
	for name, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "WARN": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := LogLevel(name); err != nil || got != want {
			t.Errorf("%s is %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"debug-4", "DEBUG-8", "info+2", "trace", "-8", ""} {
		if got, err := LogLevel(name); err == nil {
			t.Errorf("%q is %s", name, got)
		}
	}
}
