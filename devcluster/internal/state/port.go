package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// PortTakenError says that the API server's port is in use by another program.
type PortTakenError struct {
	Port int
	Kept bool // the port is this directory's own from an earlier start, and kubeconfigs name it
}

func (e *PortTakenError) Error() string {
	msg := fmt.Sprintf("port %d on 127.0.0.1 is taken by another program (ss -ltnp 'sport = :%d' shows which): stop it", e.Port, e.Port)
	if e.Kept {
		return msg + ", or move this cluster with --port N; kubeconfigs from before name the old port and then need to be read anew"
	}
	return msg + ", or choose another --port (0 picks a free one)"
}

// Port settles the API server's port: the one asked for, else the one that this directory had before, else
// a free one. It is remembered, so that kubeconfigs written earlier stay good.
func (d *Dir) Port(asked int) (int, error) {
	kept, err := d.keptPort()
	if err != nil {
		return 0, err
	}
	port := asked
	if port == 0 {
		port = kept
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return 0, err
		}
	} else if err := probe(port); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, &PortTakenError{Port: port, Kept: asked == 0}
		}
		return 0, err
	}
	return port, WriteFile(d.portPath(), []byte(strconv.Itoa(port)+"\n"), 0o600)
}

func (d *Dir) keptPort() (int, error) {
	b, err := os.ReadFile(d.portPath())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("%s does not hold a port; remove the file to let a new one be chosen", d.portPath())
	}
	return port, nil
}

// freePort picks a port below the range from which the kernel takes ports for outgoing connections:
// a port of that range may be lent to any program while this cluster is stopped.
func freePort() (int, error) {
	const low = 10000
	high := 32768
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if f := strings.Fields(string(b)); len(f) == 2 {
			if n, err := strconv.Atoi(f[0]); err == nil {
				high = n
			}
		}
	}
	if high <= low+100 { // nearly everything is lent out; then any free port is as good as another
		return kernelPort()
	}
	for range 100 {
		port := low + rand.IntN(high-low)
		err := probe(port)
		if err == nil {
			return port, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, err
		}
	}
	return kernelPort()
}

func kernelPort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// probe tells whether the port can be listened on now.
func probe(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return l.Close()
}
