package process

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

var socketCount atomic.Int64

// listenNotify opens the socket on which the component reports that it serves. An abstract name needs no
// file, and so no path that could be too long for a socket.
func (p *Process) listenNotify() error {
	name := fmt.Sprintf("@devcluster/%d/%d", os.Getpid(), socketCount.Add(1))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify socket: %w", err)
	}
	p.notify, p.socket = conn, name
	go func() { // until closeNotify; it keeps reading so that a later run of the component never blocks
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				if line == "READY=1" {
					p.readyOnce.Do(func() { close(p.ready) })
				}
			}
		}
	}()
	return nil
}

func (p *Process) closeNotify() error {
	if p.notify == nil {
		return nil
	}
	return p.notify.Close()
}
