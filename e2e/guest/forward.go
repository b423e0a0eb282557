package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// forward is the agent's second use, `agent forward LISTEN TARGET`: it stands in for
// what a node's proxy does with the API server's service address.
func forward(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("forward %q: want an address to listen on and one to connect to", args)
	}
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := join(conn, args[1]); err != nil {
				fmt.Fprintln(os.Stderr, "forward:", err)
			}
		}()
	}
}

// join passes bytes both ways until either side has ended.
func join(here net.Conn, target string) error {
	there, err := net.Dial("tcp", target)
	if err != nil {
		return err
	}
	defer there.Close()
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // how a connection ends is between its two ends
		ended <- struct{}{}
	}
	go pass(there, here)
	go pass(here, there)
	<-ended
	return nil
}
