package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
)

// examineLimit bounds an examination: whoever does not answer by then is silent.
const examineLimit = 30 * time.Second

func newDoctor() *cobra.Command {
	var file, root, runtime, dir string
	var all, strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find what keeps Quietcore from working on this node",
		Long: `Looks at the runtime's NRI, other plugins, kubelet, cgroups, systemd, the kernel and its counters,
capabilities, the state directory, a second daemon, the daemon itself and its rights at the API
server. Says what keeps Quietcore from working, or will after the next restart, and how to mend
it. Nothing is changed, and no daemon need run. docs/doctor.md lists every finding.

Exits with 1 where there is an error (with --strict: a warning too).`,
		Example: `  quietcore doctor
  quietcore doctor --all -o json
  quietcore doctor --root /host         in a pod that has the node's file system there`,
		Args: cli.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one "+doctor.UsualConfig+
		" if it is there, else the defaults")
	cmd.Flags().StringVar(&root, "root", "/", "where the node's file system is")
	cmd.Flags().StringVar(&runtime, "runtime", "", "containerd or cri-o; without it the one whose socket is there")
	cmd.Flags().StringVar(&dir, "config-dir", "",
		"the runtime's configuration directory; without it /etc/containerd or /etc/crio")
	cmd.Flags().BoolVar(&all, "all", false, "tell also what is well")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 where there is a warning too")
	cli.Completes(cmd, "runtime", string(enablenri.Containerd), string(enablenri.CRIO))
	_ = cmd.MarkFlagFilename("config", "yaml") // it exists: defined above
	_ = cmd.MarkFlagDirname("root")            // so does this
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := doctor.Options{Root: root, Config: file, Runtime: enablenri.Runtime(runtime), RuntimeDir: dir}
		if runtime != "" {
			if err := cli.OneOf("runtime", runtime, string(enablenri.Containerd), string(enablenri.CRIO)); err != nil {
				return err
			}
		}
		for flag, path := range map[string]string{"root": root, "config-dir": dir} {
			if path != "" && !filepath.IsAbs(path) {
				return cli.Usage("--%s is %q; it must be absolute", flag, path)
			}
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return cli.Usage("--root is %q; it must be a directory", root)
		}
		r := examine(cmd.Context(), o)
		if *format == "json" {
			if err := cli.WriteJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		} else if err := r.Text(cmd.OutOrStdout(), all); err != nil {
			return err
		}
		return verdict(&r, strict)
	}
	return cmd
}

// verdict is the exit code in words.
func verdict(r *doctor.Report, strict bool) error {
	errs, warnings := r.Count(doctor.Error), r.Count(doctor.Warning)
	if errs == 0 && (!strict || warnings == 0) {
		return nil
	}
	return fmt.Errorf("%d errors and %d warnings were found", errs, warnings)
}

// examine asks everybody; what belongs to this machine is not asked about another's
// files.
func examine(ctx context.Context, o doctor.Options) doctor.Report {
	ctx, cancel := context.WithTimeout(ctx, examineLimit)
	defer cancel()
	o.Now = time.Now()
	o.Probes = doctor.Probes{Daemon: probeDaemon, API: probeAPI}
	if o.Root == "/" {
		o.Probes.RuntimeVersion, o.Probes.Counters = probeRuntime, probeCounters
	}
	return doctor.Check(doctor.Gather(ctx, o))
}

func probeRuntime(ctx context.Context, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", err
	}
	return answer.RuntimeVersion, nil
}

// probeCounters opens what the daemon opens, and closes it.
func probeCounters(c *config.Config) doctor.CounterFacts {
	v1 := !exists(filepath.Join(c.Cgroup.Root, "cgroup.controllers"))
	o := daemon.CounterOptions(c, v1)
	o.MaxGroups, o.Waits = 1, counter.WaitsOff
	opened, err := counter.Open(o)
	if err != nil {
		return doctor.CounterFacts{Err: err.Error()}
	}
	defer opened.Close()
	f := doctor.CounterFacts{Absent: map[string]string{}}
	status := opened.Status()
	for _, e := range counter.Events() {
		if s := status.Sources[e]; s.Kind == counter.Absent {
			f.Absent[e.String()] = s.Reason
		}
	}
	return f
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func probeDaemon(ctx context.Context, c *config.Config) doctor.DaemonFacts {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d := doctor.DaemonFacts{There: exists(c.Socket)}
	s, err := control.Client{Socket: c.Socket}.Status(ctx)
	if err != nil {
		if d.There {
			d.Err = err.Error()
		}
		return d
	}
	d.Answers, d.Connected, d.Synchronised, d.Containers = true, s.Connected, s.Synchronised, len(s.Containers)
	for _, p := range s.Unannounced {
		d.Unannounced = append(d.Unannounced, p.CgroupPath)
		if p.Masked {
			d.Masked = append(d.Masked, p.CgroupPath)
		}
	}
	if health, err := readiness(ctx, c.Listen); err == nil {
		d.Degraded = health.Degraded
	} else if why := s.CPI.Why; why != "" {
		d.Degraded = map[string]string{metrics.FeatureCPI: why}
	}
	return d
}

// readiness asks /readyz. It is served where metrics are.
func readiness(ctx context.Context, listen string) (*metrics.Report, error) {
	text, err := fromListener(ctx, listen, "/readyz")
	if err != nil {
		return nil, err
	}
	r := &metrics.Report{}
	return r, json.Unmarshal(text, r)
}

// fromListener asks the daemon's TCP listener on this machine.
func fromListener(ctx context.Context, listen, path string) ([]byte, error) {
	if listen == "" {
		return nil, errors.New("the daemon serves neither probes nor metrics: listen is empty")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return nil, err
	}
	// No proxy: the address is this machine's.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	const most = 16 << 20
	return io.ReadAll(io.LimitReader(resp.Body, most))
}

func probeAPI(ctx context.Context, c *config.Config) doctor.APIFacts {
	if !kube.Available(c.Kubernetes.Kubeconfig) {
		return doctor.APIFacts{}
	}
	a := doctor.APIFacts{Asked: true}
	name := c.NodeName()
	if name == "" {
		name = "unknown" // the client wants one; it is not asked about
	}
	reached, err := kube.New(kube.Options{Kubeconfig: c.Kubernetes.Kubeconfig, Node: name, Version: version})
	if err != nil {
		a.Err = err.Error()
		return a
	}
	server, err := newServer(reached)
	if err == nil {
		err = server.examine(ctx, c, &a)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// server is an API server that is asked a few questions. The clients of all of its
// groups would cost the daemon's binary more than everything else.
type server struct {
	client *http.Client
	base   *url.URL
}

func newServer(reached *kube.Client) (*server, error) {
	address, err := reached.REST()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(address)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(address)
	return &server{client, base}, err
}

// ask sends body (nil: a GET) and reads the answer into out; the status is that of a
// good answer, 403 or 404.
func (s *server) ask(ctx context.Context, path string, query url.Values, body, out any) (status int, err error) {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if text, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	to := s.base.JoinPath(path)
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	const most = 4 << 20
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most))
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusNotFound:
		return resp.StatusCode, nil
	case resp.StatusCode/100 != 2:
		return 0, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.StatusCode, json.Unmarshal(answer, out)
}

func (s *server) examine(ctx context.Context, c *config.Config, a *doctor.APIFacts) error {
	for _, r := range doctor.Rights(c) {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review := authorization.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec: authorization.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorization.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: resource,
					Subresource: sub}},
		}
		status, err := s.ask(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review, &review)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("what the credentials may do is not told: status %d", status)
		}
		if err != nil {
			return err
		}
		a.Checked++
		if !review.Status.Allowed {
			a.Denied = append(a.Denied, r)
		}
	}
	if name := c.NodeName(); name != "" {
		var nodes metav1.PartialObjectMetadataList
		status, err := s.ask(ctx, "/api/v1/nodes", url.Values{"fieldSelector": {"metadata.name=" + name},
			"limit": {"1"}}, nil, &nodes)
		if err != nil {
			return err
		}
		a.NoNode = status == http.StatusOK && len(nodes.Items) == 0
	}
	if c.Kubernetes.Topology.Enabled {
		var group metav1.APIResourceList
		status, err := s.ask(ctx, "/apis/topology.node.k8s.io/v1alpha2", nil, nil, &group)
		if err != nil {
			return err
		}
		a.NoCRD = status == http.StatusNotFound
	}
	return nil
}
