package main

import (
	"io"
	"net"
	"testing"
)

// What one side sends reaches the other, and the end of one is the end of both.
func TestJoinPassesBothWays(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	here, client := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- join(here, target.Addr().String()) }()
	server, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		from io.Writer
		to   io.Reader
	}{{client, server}, {server, client}} {
		if _, err := way.from.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(way.to, got); err != nil || string(got) != "hello" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	server.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestForwardRefusesWhatItCannotDo(t *testing.T) {
	for _, args := range [][]string{nil, {"127.0.0.1:0"}, {"nowhere", "127.0.0.1:1"}} {
		if err := forward(args); err == nil {
			t.Errorf("forward %q: no error", args)
		}
	}
	if err := join(nil, "127.0.0.1"); err == nil {
		t.Error("join with an address that has no port: no error")
	}
}
