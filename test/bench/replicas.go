package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// absent says that a part needs PostgreSQL and there is none: the rest of the
// bench is worth having.
func absent(err error) error {
	if errors.Is(err, errNoPostgres) {
		fmt.Fprintln(os.Stderr, "  left out:", err)
		return nil
	}
	return err
}

func (b *bench) postgres() error {
	url, err := b.database("wire")
	if err != nil {
		return absent(err)
	}
	return b.writesOn(b.pg, url, goals{name: "PostgreSQL", rate: 800, bound: true,
		floor: "three commits of the same rows, synchronous_commit=on, and two loopback requests"})
}

func (b *bench) writesOn(pg *postgres, url string, g goals) error {
	floor, err := pg.database("floor")
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", floor)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	f, err := newSQLFloor(b.ctx, db)
	if err != nil {
		return err
	}
	defer f.close()
	return b.wire(url, f, g)
}

// slowDelay is what is added to each fsync of the slow disk.
const slowDelay = 2 * time.Millisecond

// slowDisk measures PostgreSQL on a disk whose every fsync takes longer.
func (b *bench) slowDisk() error {
	pg, err := b.startPostgres(slowDelay)
	if err != nil {
		return absent(err)
	}
	defer pg.stop()
	fmt.Fprintln(os.Stderr, "  the slow disk:", pg.how)
	url, err := pg.database("wire")
	if err != nil {
		return err
	}
	return b.writesOn(pg, url, goals{name: "PostgreSQL, " + slowDelay.String() + " more each fsync", rate: 600,
		floor: "three commits and two loopback requests on the same"})
}

// river measures the yardstick's no-op jobs on the same PostgreSQL.
func (b *bench) river() error {
	url, err := b.database("river")
	if err != nil {
		return absent(err)
	}
	program := filepath.Join(b.bin, "bench-river")
	if _, err := os.Stat(program); err != nil {
		fmt.Fprintln(os.Stderr, "  left out: run 'make bench', which builds", program)
		return nil
	}
	measure := func(url, where string) error {
		out, err := exec.CommandContext(b.ctx, program, "-url", url, "-n", strconv.Itoa(b.n*6), "-clients", "16").Output()
		if err != nil {
			return fmt.Errorf("bench-river: %w", err)
		}
		var got struct{ Rate, P50 float64 }
		if err := json.Unmarshal(out, &got); err != nil {
			return err
		}
		b.add(figure{Name: "River, no-op jobs from sixteen clients that do not wait" + where, Value: got.Rate, Unit: "/s"})
		b.add(figure{Name: "River, insert to completed, one client, p50" + where, Value: got.P50, Unit: "ms"})
		return nil
	}
	if err := measure(url, ""); err != nil {
		return err
	}
	slow, err := b.startPostgres(slowDelay)
	if err != nil {
		return err
	}
	defer slow.stop()
	if url, err = slow.database("river"); err != nil {
		return err
	}
	return measure(url, ", "+slowDelay.String()+" more each fsync")
}

// statements counts what a PUT and a DELETE cost PostgreSQL, by its own log.
func (b *bench) statements() error {
	url, err := b.database("statements")
	if err != nil {
		return absent(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(b.ctx, `ALTER DATABASE statements SET log_statement = 'all'`)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	p, err := b.server(url, "--workers=false") // only what a write itself does
	if err != nil {
		return err
	}
	defer p.stop()
	for _, w := range []struct{ method, body string }{{http.MethodPut, body}} {
		before, err := os.ReadFile(b.pg.log)
		if err != nil {
			return err
		}
		if r, err := p.Send(b.ctx, w.method, notePath("counted", 0), w.body); err != nil || r.Status >= 300 {
			return fmt.Errorf("%s: %w: %s", w.method, err, r.Raw)
		}
		after, err := os.ReadFile(b.pg.log)
		if err != nil {
			return err
		}
		transactions, most := count(after[len(before):])
		b.add(figure{Name: "transactions that write of a " + w.method + " on PostgreSQL", Value: float64(transactions)}.atMost(1))
		b.add(figure{Name: "statements of the transaction of a " + w.method + " on PostgreSQL", Value: float64(most)}.atMost(6))
	}
	return nil
}

var logged = regexp.MustCompile(`(?m)^.*\[(\d+)\].*LOG:  (?:statement|execute [^:]*): *(.*)$`)

// count reads a log with statements, and returns how many transactions wrote
// and how many statements the longest of them had, its begin and commit apart.
func count(log []byte) (transactions, most int) {
	open := map[string][]string{}
	for _, m := range logged.FindAllSubmatch(log, -1) {
		pid, text := string(m[1]), strings.ToLower(string(bytes.TrimSpace(m[2])))
		switch {
		case strings.HasPrefix(text, "begin"):
			open[pid] = []string{}
		case strings.HasPrefix(text, "commit"), strings.HasPrefix(text, "rollback"):
			writes := false
			for _, s := range open[pid] {
				writes = writes || strings.Contains(s, "insert") || strings.Contains(s, "update") || strings.Contains(s, "delete")
			}
			if writes {
				transactions++
				most = max(most, len(open[pid]))
			}
			delete(open, pid)
		default:
			if s, ok := open[pid]; ok {
				open[pid] = append(s, text)
			}
		}
	}
	return transactions, most
}
