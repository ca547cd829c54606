package process

import (
	"errors"
	"io"
	"os"
	"strings"
)

const (
	tailLines = 15
	tailBytes = 16 << 10
)

// rotate keeps the log of the run before as PATH.old, so that a log file is about one run.
func rotate(path string) error {
	err := os.Rename(path, path+".old")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// logTail is the end of the component's log with its path, for an error message.
func (p *Process) logTail() string {
	path := p.logPath()
	text, err := tail(path)
	if err != nil {
		return "(its log cannot be read: " + err.Error() + ")"
	}
	return "the end of " + path + ":\n" + text
}

func tail(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return "", err
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  " + strings.Join(lines, "\n  "), nil
}
