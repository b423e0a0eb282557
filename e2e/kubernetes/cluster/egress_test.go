package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/machine"
)

func TestEgressReachesKubeletAlone(t *testing.T) {
	kubelet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	go func() {
		for {
			c, err := kubelet.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "here is kubelet\n")
			io.Copy(c, c)
			c.Close()
		}
	}()
	socket := filepath.Join(t.TempDir(), "s")
	e, err := startEgress(socket, kubelet.Addr().String(), kubelet.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}()
	for to, want := range map[string]int{
		fmt.Sprintf("%s:%d", machine.GuestAddress, kubeletPort): 200,
		"10.85.0.7:9464":             200, // a pod's
		machine.GuestAddress + ":22": 403,
		"127.0.0.1:10250":            403,
	} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
		from := bufio.NewReader(c)
		answer, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		if answer.StatusCode != want {
			t.Errorf("CONNECT %s: %s, want %d", to, answer.Status, want)
		}
		if want != 200 {
			continue
		}
		if said, _ := from.ReadString('\n'); !strings.Contains(said, "kubelet") {
			t.Errorf("kubelet says %q", said)
		}
		fmt.Fprint(c, "echo\n")
		if said, _ := from.ReadString('\n'); said != "echo\n" {
			t.Errorf("kubelet answers %q", said)
		}
		c.Close() // it serves one at a time
	}
}
