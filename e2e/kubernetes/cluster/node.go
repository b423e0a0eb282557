package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
)

// NodeName is of the first Node object.
const NodeName = "guest"

// Kubelet is the supervised program's name.
const Kubelet = "kubelet"

// Where things are in the guest.
const (
	kubeletDir    = "/var/lib/kubelet"
	KubeletConfig = kubeletDir + "/config.yaml"
	KubeletState  = kubeletDir + "/cpu_manager_state"
	ManifestDir   = "/etc/kubernetes/manifests"
	clientConfig  = "/etc/kubernetes/kubelet.conf"
	pkiDir        = "/etc/kubernetes/pki"
)

// Node is the machine that the cluster's pods run on.
type Node struct {
	*machine.Machine
	Name  string        // of its object
	Ready time.Duration // from kubelet's first start to the Node's condition

	plane *Plane
}

// nodeMemoryMiB has room for kubelet and its own copy of the root tree, in addition to what
// every guest of these tests needs.
const nodeMemoryMiB = 5120

// limits of what is waited for on the node; each takes seconds on a free host.
const (
	nodeLimit    = 5 * time.Minute
	kubeletLimit = 2 * time.Minute
)

// Join boots a machine with these options and makes it a node of the cluster. kubelet's
// own configuration is added to the one that every node here has. The API server reaches the
// kubelet of NodeName alone.
func (p *Plane) Join(ctx context.Context, name string, o machine.Options, config map[string]any) (*Node, error) {
	files := map[string]string{"usr/bin/kubelet": filepath.Join(p.bin.Kubernetes, "kubelet")}
	for _, plugin := range plugins {
		files["opt/cni/bin/"+path.Base(plugin)] = filepath.Join(p.bin.CNI, path.Base(plugin))
	}
	maps.Copy(files, o.Files)
	o.Files, o.Network = files, true
	if name == NodeName {
		o.Forward = map[int]int{p.kubelet: kubeletPort, p.pods: podForward}
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = nodeMemoryMiB
	}
	m, err := machine.Boot(ctx, o)
	if err != nil {
		return nil, err
	}
	n := &Node{Machine: m, Name: name, plane: p}
	if err := n.join(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, n.Diagnosis(ctx)), m.Close())
	}
	return n, nil
}

func (n *Node) join(ctx context.Context, config map[string]any) error {
	if err := n.prepare(ctx); err != nil {
		return err
	}
	if err := n.StartRuntime(ctx); err != nil {
		return err
	}
	if err := n.ImportImage(ctx); err != nil {
		return err
	}
	if err := n.Configure(ctx, config); err != nil {
		return err
	}
	began := time.Now()
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	n.Ready = time.Since(began)
	return nil
}

// network is a pod's: a pair of interfaces, one end in the pod. What a pod reaches
// over it is its node and, through the service address, the API server.
const network = `{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{"type": "ptp",
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// prepare makes of a guest what a node has before kubelet: folders on file systems that
// kubelet can measure, which the initramfs is not, and the service address.
func (n *Node) prepare(ctx context.Context) error {
	// Volumes that follow the node's mounts need that; systemd does it at its start.
	if _, err := n.Exec(ctx, "busybox", "mount", "--make-rshared", "/"); err != nil {
		return err
	}
	for _, dir := range []string{kubeletDir, n.Runtime.Data()} {
		if _, err := n.Files(ctx, wire.FileAction{Do: wire.FileMkdir, Path: dir}); err != nil {
			return err
		}
		if _, err := n.Exec(ctx, "busybox", "mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", dir); err != nil {
			return err
		}
	}
	conf, err := n.plane.GuestKubeconfig("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	serving, err := n.plane.authority.server(n.Name, machine.GuestAddress)
	if err != nil {
		return err
	}
	var actions []wire.FileAction
	for name, content := range map[string]string{
		"/etc/cni/net.d/10-e2e.conflist": network, clientConfig: conf,
		pkiDir + "/ca.crt": string(n.plane.authority.pem()), pkiDir + "/kubelet.crt": string(serving.cert), pkiDir +
			"/kubelet.key": string(serving.key),
	} {
		actions = append(actions, wire.FileAction{Do: wire.FileWrite, Path: name, Data: []byte(content), Mode: 0o600})
	}
	actions = append(actions, wire.FileAction{Do: wire.FileMkdir, Path: ManifestDir})
	if _, err := n.Files(ctx, actions...); err != nil {
		return err
	}
	if _, err := n.Exec(ctx, "busybox", "ip", "address", "add", ServiceAddress+"/32", "dev", "lo"); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(n.plane.address)
	if err != nil {
		return err
	}
	return n.Start(ctx, "service", "/usr/bin/agent", "forward", ServiceAddress+":443",
		net.JoinHostPort(machine.HostAddress, port))
}

// ReachPod has the API server's proxy reach podPort of a pod, which can be done once. Only NodeName is reached.
func (n *Node) ReachPod(ctx context.Context, address string) error {
	return n.Start(ctx, "pod", "/usr/bin/agent", "forward",
		net.JoinHostPort(machine.GuestAddress, fmt.Sprint(podForward)),
		net.JoinHostPort(address, fmt.Sprint(podPort)))
}

// Configure writes kubelet's configuration for its next start.
func (n *Node) Configure(ctx context.Context, more map[string]any) error {
	driver := "cgroupfs"
	if n.Driver == kubelet.Systemd {
		driver = "systemd"
	}
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"cgroupDriver": driver, "containerRuntimeEndpoint": "unix://" + n.Runtime.Socket(),
		"staticPodPath": ManifestDir,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": pkiDir + "/ca.crt"}},
		"tlsCertFile": pkiDir + "/kubelet.crt", "tlsPrivateKeyFile": pkiDir + "/kubelet.key",
		"resolvConf": "", "makeIPTablesUtilChains": false, "failSwapOn": false, "fileCheckFrequency": "2s",
		// The guest's memory is its disk, and nothing of it may be measured or cleaned up.
		"localStorageCapacityIsolation": false, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"evictionHard": map[string]any{"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%"},
	}
	maps.Copy(config, more)
	text, err := json.MarshalIndent(config, "", " ")
	if err != nil {
		return err
	}
	return n.WriteFile(ctx, KubeletConfig, string(text))
}

// StartKubelet waits until kubelet is healthy.
func (n *Node) StartKubelet(ctx context.Context) error {
	err := n.Start(ctx, Kubelet, "env", "GOMAXPROCS=2", "GOGC=400", "/usr/bin/kubelet", "--config="+KubeletConfig,
		"--kubeconfig="+clientConfig, "--hostname-override="+n.Name, "--node-ip="+machine.GuestAddress, "--v=2")
	if err != nil {
		return err
	}
	return Until(ctx, kubeletLimit, func(ctx context.Context) error {
		if running, code, err := n.Running(ctx, Kubelet); err == nil && !running {
			return fmt.Errorf("kubelet has ended with code %d", code)
		}
		_, err := n.Exec(ctx, "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:10248/healthz")
		return err
	})
}

// StopKubelet ends kubelet as a restart of its service does; pods continue.
func (n *Node) StopKubelet(ctx context.Context) error {
	return n.Signal(ctx, Kubelet, int(syscall.SIGTERM))
}

// ImportArchive gives the runtime an image from a file of the guest. --local, as in
// machine.ImportImage.
func (n *Node) ImportArchive(ctx context.Context, path string) error {
	_, err := n.Exec(ctx, "ctr", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "native", path)
	return err
}

// Forget removes what ended pods have left, as kubelet does up to a minute later. The runtime refuses what kubelet is
// just removing.
func (n *Node) Forget(ctx context.Context) error {
	return Until(ctx, nodeLimit, func(ctx context.Context) error {
		list, err := n.CRI().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
			State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_NOTREADY}}})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			if _, err := n.CRI().RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
				return fmt.Errorf("remove the sandbox of pod %s/%s: %w", s.Metadata.Namespace, s.Metadata.Name, err)
			}
		}
		return nil
	})
}

// WaitReady waits until the scheduler would place a pod on the node.
func (n *Node) WaitReady(ctx context.Context) error {
	return Until(ctx, nodeLimit, func(ctx context.Context) error {
		var node struct {
			Spec struct {
				Taints []struct{ Key string }
			}
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := n.plane.Get(ctx, "/api/v1/nodes/"+n.Name, &node); err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("the node has taints: %v, %v", node.Spec.Taints, node.Status.Conditions)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("the node is not ready: %v", node.Status.Conditions)
	})
}

// Diagnosis describes the guest's state after a failure.
func (n *Node) Diagnosis(ctx context.Context) string {
	return fmt.Sprintf(
		"--- console\n%s\n--- the runtime\n%s\n--- kubelet\n%s\n--- service address\n%s\n--- quietcore run\n%s\n",
		n.ConsoleTail(1500), n.RuntimeLog(ctx, 3000), n.LogTail(ctx, Kubelet, 5000),
		n.LogTail(ctx, "service", 500), n.LogTail(ctx, machine.Daemon, 5000))
}
