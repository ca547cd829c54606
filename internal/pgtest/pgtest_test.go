package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

func TestServer(t *testing.T) {
	s := Start(t)
	s.Exec(t, "postgres", "CREATE TABLE kept (a int); INSERT INTO kept VALUES (7)")
	read := func() (a int, fsync string, err error) {
		conn, err := pgx.Connect(context.Background(), s.DSN("postgres"))
		if err != nil {
			return 0, "", err
		}
		defer conn.Close(context.Background())
		err = conn.QueryRow(context.Background(), "SELECT a, current_setting('fsync') FROM kept").Scan(&a, &fsync)
		return a, fsync, err
	}
	for _, end := range []func(testing.TB){s.Stop, s.Crash} {
		end(t)
		if _, _, err := read(); err == nil {
			t.Fatal("a stopped server answers")
		}
		s.Restart(t)
		if a, fsync, err := read(); err != nil || a != 7 || fsync != "on" {
			t.Fatalf("after the restart: %d, fsync %s (%v)", a, fsync, err)
		}
	}
	if a, b := Database(t), Database(t); a == b {
		t.Errorf("two databases share %s", a)
	}
}
