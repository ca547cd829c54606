package dev

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

// PortTakenError says that the control plane's port is in use by another program.
type PortTakenError struct {
	Port int
	// Kept says that the port is the directory's own from an earlier start.
	Kept bool
}

func (e *PortTakenError) Error() string {
	msg := fmt.Sprintf("port %d on 127.0.0.1 is taken by another program (ss -ltnp 'sport = :%d' shows which): end it", e.Port, e.Port)
	if e.Kept {
		return msg + ", or move the control plane with --port N"
	}
	return msg + ", or choose another --port"
}

// port settles the control plane's port: the one asked for, else the one that the directory had before, else a
// free one. It is kept, so that the URL in people's shells and scripts stays good.
func (d Dir) port(asked int) (int, error) {
	if asked < 0 || asked > 65535 {
		return 0, fmt.Errorf("--port %d is not a port: choose one between 1 and 65535", asked)
	}
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
	return port, d.writePort(port)
}

// freePort picks a port below those that the kernel lends to outgoing connections, since one of them may be
// lent to any program while this installation is stopped.
func freePort() (int, error) {
	low, high := 10000, 32768
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if f := strings.Fields(string(b)); len(f) == 2 {
			if n, err := strconv.Atoi(f[0]); err == nil && n > low+100 {
				high = n
			}
		}
	}
	var err error
	for range 100 {
		port := low + rand.IntN(high-low)
		if err = probe(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d: choose one with --port: %w", low, high, err)
}

// probe tells whether the port can be listened on now.
func probe(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return l.Close()
}
