package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// view is what a command has to show: data for programs, and a table or a text for people.
type view struct {
	// data is what -o json and -o yaml show.
	data any
	// table, or text when it is set, is what people see.
	table table
	text  string
}

// table has one header and its rows; empty is said instead when there are none.
type table struct {
	columns []string
	rows    [][]string
	empty   string
	// footer stands below the rows.
	footer string
}

// show writes a view to standard output in the form that was asked for.
func (s *session) show(v view) error {
	switch s.output {
	case "json":
		b, err := encode(v.data)
		if err != nil {
			return err
		}
		_, err = s.Out.Write(b)
		return err
	case "yaml":
		b, err := yaml.Marshal(v.data)
		if err != nil {
			return err
		}
		_, err = s.Out.Write(b)
		return err
	}
	if v.text != "" {
		_, err := io.WriteString(s.Out, strings.TrimRight(v.text, "\n")+"\n")
		return err
	}
	_, err := io.WriteString(s.Out, v.table.String())
	return err
}

// encode is JSON for people who read it: indented, and with < and > as they are.
func encode(data any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(data)
	return b.Bytes(), err
}

// String lays the table out: columns as wide as their widest cell, two spaces apart, no trailing blanks.
func (t table) String() string {
	if len(t.rows) == 0 {
		return t.empty + "\n"
	}
	widths := make([]int, len(t.columns))
	lines := append([][]string{t.columns}, t.rows...)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		var row strings.Builder
		for i, cell := range line {
			row.WriteString(cell)
			if i < len(line)-1 {
				row.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	if t.footer != "" {
		b.WriteString(t.footer + "\n")
	}
	return b.String()
}

// done says that something was done: a sentence for people, the object for programs.
func (s *session) done(data any, format string, args ...any) error {
	return s.show(view{data: data, text: fmt.Sprintf(format, args...)})
}

// fields is a text of "name: value" lines with the values under each other; empty values are left out.
func fields(pairs ...[2]string) string {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	var b strings.Builder
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(&b, "%s:%s  %s\n", p[0], strings.Repeat(" ", width-len(p[0])), p[1])
		}
	}
	return b.String()
}
