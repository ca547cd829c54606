package realnode

import (
	"bufio"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelay(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintf(c, "echo %s\n", lines.Text())
				}
			}()
		}
	}()
	r, err := startRelay("127.0.0.1:0", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", r.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewScanner(c)
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(c, word)
		if !answers.Scan() || answers.Text() != "echo "+word {
			t.Fatalf("answer %q, %v", answers.Text(), answers.Err())
		}
	}
	if err := r.Close(); err != nil { // returns although a connection is open
		t.Fatal(err)
	}
	if answers.Scan() {
		t.Error("a connection outlived the relay")
	}
}

func TestSplitRule(t *testing.T) {
	got := splitRule(`PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	want := []string{"PREROUTING", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
