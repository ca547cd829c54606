// Command standin takes the place of Redis on the real node, whose images must be static programs of this machine:
// it is ready on Redis's port, and answers every command alike. It keeps no data.
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"strings"
)

func main() {
	l, err := net.Listen("tcp", ":6379")
	if err != nil {
		log.Fatal(err)
	}
	log.Print("standing in for Redis on :6379")
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "*") { // the beginning of a command
					if _, err := fmt.Fprint(c, "+OK\r\n"); err != nil {
						return
					}
				}
			}
		}()
	}
}
