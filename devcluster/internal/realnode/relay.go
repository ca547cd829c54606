package realnode

import (
	"io"
	"net"
	"strconv"
	"sync"
)

// Relay gives pods a way to the API server, which listens on loopback only: it takes connections on the
// node's address and passes their bytes on. TLS is not ended here.
type Relay struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// StartRelay listens on the node's address, which Prepare has made.
func StartRelay(port int) (*Relay, error) {
	return startRelay(net.JoinHostPort(Address, strconv.Itoa(port)), net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func startRelay(listen, target string) (*Relay, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: l, target: target, conns: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *Relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.pass(from) })
	}
}

func (r *Relay) pass(from net.Conn) {
	if !r.keep(from) {
		return
	}
	defer r.drop(from)
	to, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	if !r.keep(to) {
		return
	}
	defer r.drop(to)
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // either end may go at any time
			done <- struct{}{}
		}()
	}
	<-done // one direction has ended: TLS has no use for half a connection
}

// keep remembers a connection for Close; after Close it closes it and returns false.
func (r *Relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *Relay) drop(c net.Conn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// Close ends the relay and every connection through it.
func (r *Relay) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.wg.Wait()
	return err
}
