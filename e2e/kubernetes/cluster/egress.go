package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
)

// kubeletPort is where kubelet serves logs and exec.
const kubeletPort = 10250

// egressConfig lets the API server reach nodes through a proxy, since the host has no
// route into QEMU's network.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`

// podPort is that of pods which the API server's proxy reaches: the daemon's `listen`. In the guest
// podForward leads to the pod that ReachPod named.
const podPort, podForward = 9464, 19464

// egress is that proxy: it maps kubelet's address in the guest, and podPort of any pod, to
// ports of this host's loopback, and reaches nothing else.
type egress struct {
	server *http.Server
	done   chan struct{}
}

func startEgress(socket string, kubelet, pods string) (*egress, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	node := net.JoinHostPort(machine.GuestAddress, fmt.Sprint(kubeletPort))
	e := &egress{done: make(chan struct{})}
	e.server = &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			target := kubelet
			if _, port, err := net.SplitHostPort(r.Host); err == nil && port == fmt.Sprint(podPort) {
				target = pods
			} else if r.Host != node {
				target = ""
			}
			if r.Method != http.MethodConnect || target == "" {
				http.Error(w, fmt.Sprintf("%s %s: only CONNECT %s, or to port %d, is served", r.Method, r.Host, node,
					podPort), http.StatusForbidden)
				return
			}
			there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", target)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer there.Close()
			here, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer here.Close()
			if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
				return
			}
			join(here, buffered, there)
		})}
	go func() {
		defer close(e.done)
		_ = e.server.Serve(l) // ends with close
	}()
	return e, nil
}

// join copies in both directions until either end closes.
func join(here net.Conn, fromHere io.Reader, there net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(there, fromHere); there.Close() })
	both.Go(func() { _, _ = io.Copy(here, there); here.Close() })
	both.Wait()
}

func (e *egress) close() error {
	err := e.server.Close()
	<-e.done
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
