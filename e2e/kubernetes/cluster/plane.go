package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
)

// ServiceAddress is where pods find the API server.
const ServiceAddress = "10.96.0.1"

const serviceRange = "10.96.0.0/24"

// Options of a control plane.
type Options struct {
	Binaries *Binaries
	Dir      string // for data, certificates and logs; empty: a temporary one
}

// Plane is a running control plane on this host's loopback.
type Plane struct {
	*API                // as a member of system:masters
	Ready time.Duration // from the first process' start to the API server's readiness

	bin       *Binaries
	dir       string
	ownDir    bool
	address   string // of the API server
	authority *authority
	children  []*child
	server    *child
	egress    *egress
	kubelet   int // the port of this host's loopback that is kubelet's in the guest
	pods      int // that which is podForward there
}

// readyLimit bounds how long the API server may take to be ready; it takes about
// ten seconds on two free CPUs.
const readyLimit = 3 * time.Minute

// Start returns when the API server is ready.
func Start(ctx context.Context, o Options) (*Plane, error) {
	p := &Plane{bin: o.Binaries, dir: o.Dir}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context) (err error) {
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "quietcore-kubernetes-"); err != nil {
			return err
		}
		p.ownDir = true
	}
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	if p.authority, err = newAuthority(time.Now()); err != nil {
		return err
	}
	ports, err := freePorts(5)
	if err != nil {
		return err
	}
	p.address, p.kubelet, p.pods = fmt.Sprintf("127.0.0.1:%d", ports[0]), ports[3], ports[4]
	if err := p.writeFiles(); err != nil {
		return err
	}
	admin, err := p.authority.client("e2e", "system:masters")
	if err != nil {
		return err
	}
	if p.API, err = newAPI(p.address, p.authority, admin); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("admin.conf"), p.kubeconfig("https://"+p.address, admin), 0o600); err != nil {
		return err
	}
	p.egress, err = startEgress(p.path("egress.sock"), fmt.Sprintf("127.0.0.1:%d", p.kubelet),
		fmt.Sprintf("127.0.0.1:%d", p.pods))
	if err != nil {
		return err
	}
	return p.startAll(ctx, ports)
}

func (p *Plane) startAll(ctx context.Context, ports []int) error {
	began := time.Now()
	client := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	if err := p.run("etcd", "--name=e2e", "--data-dir="+p.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer); err != nil {
		return err
	}
	p.server = newChild(p.dir, "kube-apiserver", p.serverCommand(client)...)
	if err := p.StartServer(ctx); err != nil {
		return err
	}
	p.Ready = time.Since(began)
	if err := p.run("kube-controller-manager", "--kubeconfig="+p.path("controllers.conf"), "--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials", "--service-account-private-key-file="+p.path("accounts.key"),
		"--root-ca-file="+p.path("ca.crt")); err != nil {
		return err
	}
	return p.run(scheduler, "--kubeconfig="+p.path("scheduler.conf"), "--leader-elect=false", "--secure-port=0")
}

func (p *Plane) serverCommand(etcd string) []string {
	host, port, _ := net.SplitHostPort(p.address) // made by us
	return []string{filepath.Join(p.bin.Kubernetes, "kube-apiserver"),
		"--etcd-servers=" + etcd,
		"--bind-address=" + host, "--secure-port=" + port,
		// What the node reaches; a loopback address is refused here.
		"--advertise-address=" + machine.HostAddress,
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + p.path("server.crt"), "--tls-private-key-file=" + p.path("server.key"),
		"--client-ca-file=" + p.path("ca.crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.path("accounts.pub"), "--service-account-signing-key-file=" +
			p.path("accounts.key"),
		"--audit-policy-file=" + p.path("audit.yaml"), "--audit-log-path=" + p.path("audit.log"),
		"--audit-log-mode=blocking",
		"--allow-privileged=true",
		"--egress-selector-config-file=" + p.path("egress.yaml"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority=" + p.path("ca.crt"),
		"--kubelet-client-certificate=" + p.path("kubelet-client.crt"), "--kubelet-client-key=" +
			p.path("kubelet-client.key"),
	}
}

// auditPolicy records users and requests, without their bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

func (p *Plane) writeFiles() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	server, err := p.authority.server("kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"127.0.0.1", machine.HostAddress, ServiceAddress)
	if err != nil {
		return err
	}
	accounts, public, err := accountKeys()
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": p.authority.pem(), "accounts.key": accounts, "accounts.pub": public,
		"audit.yaml":  []byte(auditPolicy),
		"egress.yaml": fmt.Appendf(nil, egressConfig, p.path("egress.sock"))}
	for name, user := range map[string]string{"controllers.conf": "system:kube-controller-manager",
		"scheduler.conf": "system:kube-scheduler"} {
		cert, err := p.authority.client(user)
		if err != nil {
			return err
		}
		files[name] = p.kubeconfig("https://"+p.address, cert)
	}
	for name, content := range files {
		if err := os.WriteFile(p.path(name), content, 0o600); err != nil {
			return err
		}
	}
	toKubelet, err := p.authority.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	return errors.Join(server.write(p.dir, "server"), toKubelet.write(p.dir, "kubelet-client"))
}

// accountKeys sign and verify the tokens of service accounts.
func accountKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// kubeconfig holds everything that it names, so that it can be copied into a guest.
// JSON is YAML.
func (p *Plane) kubeconfig(server string, user pair) []byte {
	text := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	out, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []any{map[string]any{"name": "e2e", "cluster": map[string]any{"server": server,
			"certificate-authority-data": text(p.authority.pem())}}},
		"users": []any{map[string]any{"name": "e2e",
			"user": map[string]any{"client-certificate-data": text(user.cert), "client-key-data": text(user.key)}}},
		"contexts": []any{map[string]any{"name": "e2e", "context": map[string]any{"cluster": "e2e", "user": "e2e"}}},
	}, "", " ")
	if err != nil {
		panic(err) // of strings
	}
	return out
}

// GuestKubeconfig is for a program in the guest that is this user.
func (p *Plane) GuestKubeconfig(user string, groups ...string) (string, error) {
	cert, err := p.authority.client(user, groups...)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(p.address)
	return string(p.kubeconfig("https://"+net.JoinHostPort(machine.HostAddress, port), cert)), err
}

// UserKubeconfig is a file for a program of this host that is this user.
func (p *Plane) UserKubeconfig(user string, groups ...string) (string, error) {
	cert, err := p.authority.client(user, groups...)
	if err != nil {
		return "", err
	}
	name := p.path(user + ".conf")
	return name, os.WriteFile(name, p.kubeconfig("https://"+p.address, cert), 0o600)
}

// KubectlPath is the kubectl of this cluster's version.
func (p *Plane) KubectlPath() string { return filepath.Join(p.bin.Kubernetes, "kubectl") }

// As is the API as another user, such as a tenant.
func (p *Plane) As(user string, groups ...string) (*API, error) {
	cert, err := p.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return newAPI(p.address, p.authority, cert)
}

// Kubectl runs kubectl as an administrator; stdin may be empty.
func (p *Plane) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return p.runClient(ctx, p.KubectlPath(), stdin, args...)
}

// Helm runs helm as an administrator.
func (p *Plane) Helm(ctx context.Context, args ...string) (string, error) {
	return p.runClient(ctx, filepath.Join(p.bin.Helm, "helm"), "", args...)
}

func (p *Plane) runClient(ctx context.Context, program, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", p.path("admin.conf")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+p.dir) // its caches are this cluster's
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err,
			lastOf(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// StartServer starts the API server, the first time and after StopServer.
func (p *Plane) StartServer(ctx context.Context) error {
	if err := p.server.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return p.server.ready(ctx, func(ctx context.Context) error { return p.Get(ctx, "/readyz", nil) })
}

// SetGates starts the API server and kube-scheduler anew with feature gates, such as "A=true,B=false"; empty: with
// those of their version.
func (p *Plane) SetGates(ctx context.Context, gates string) error {
	if err := p.StopServer(); err != nil {
		return err
	}
	p.server.argv = withGates(p.server.argv, gates)
	if err := p.StartServer(ctx); err != nil {
		return err
	}
	for _, c := range p.children {
		if c.name != scheduler {
			continue
		}
		if err := c.stop(stopLimit); err != nil {
			return err
		}
		c.argv = withGates(c.argv, gates)
		if err := c.start(); err != nil {
			return err
		}
	}
	return nil
}

const scheduler = "kube-scheduler"

// withGates is a command with these feature gates and no others.
func withGates(argv []string, gates string) []string {
	const flag = "--feature-gates="
	out := slices.DeleteFunc(slices.Clone(argv), func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if gates != "" {
		out = append(out, flag+gates)
	}
	return out
}

// StopServer stops the API server; everything else continues.
func (p *Plane) StopServer() error {
	p.client.CloseIdleConnections()
	return p.server.stop(stopLimit)
}

const stopLimit = 20 * time.Second

func (p *Plane) run(name string, args ...string) error {
	return p.Run(filepath.Join(p.bin.Kubernetes, name), args...)
}

// Run starts a program on this host; it ends with the control plane, and its log is in the diagnosis.
func (p *Plane) Run(program string, args ...string) error {
	c := newChild(p.dir, filepath.Base(program), append([]string{program}, args...)...)
	p.children = append(p.children, c)
	return c.start()
}

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

// Dir is where the control plane has its files; it is gone after Close.
func (p *Plane) Dir() string { return p.dir }

// AuditLog is the file that every request is in, with its user.
func (p *Plane) AuditLog() string { return p.path("audit.log") }

// Diagnosis describes the state after a failure.
func (p *Plane) Diagnosis() string {
	var b strings.Builder
	for _, c := range p.all() {
		b.WriteString(c.tail())
	}
	return b.String()
}

func (p *Plane) all() []*child {
	if p.server == nil {
		return p.children
	}
	return append([]*child{p.server}, p.children...)
}

// Close kills everything; a clean shutdown is not needed.
func (p *Plane) Close() error {
	var errs []error
	for _, c := range p.all() {
		errs = append(errs, c.stop(0))
	}
	if p.egress != nil {
		errs = append(errs, p.egress.close())
	}
	if p.ownDir {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// freePorts finds ports of the loopback without a listener.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
