package conceal

import (
	"fmt"
	"log/slog"
	"strings"
)

// LogLevel is --log-level: one of four. There is none below debug, which
// [slog.Level] could read: the libraries that speak to Kubernetes write whole
// requests there, with what is in Secrets.
func LogLevel(name string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(name, l.String()) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("--log-level %q is none of debug, info, warn, error", name)
}
