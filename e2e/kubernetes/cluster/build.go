package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quietcore/quietcore/e2e/machine"
)

// The module that pins what is built, from the root of this one.
const toolsModule = "hack/tools/kubernetes"

// The network plugins in the guest, and helm, which installs the chart as users do.
const (
	cniVersion  = "v1.9.1"
	helmVersion = "v3.22.0"
)

// Binaries are the folders in which the programs are.
type Binaries struct {
	Kubernetes string // kube-apiserver and its like, kubelet, kubectl, etcd
	CNI        string // ptp, host-local, loopback
	Helm       string
}

// programs are built from the tools module under these names.
var programs = []struct{ name, pkg string }{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
}

// plugins of the network: what a pod with an address of its own needs on one node.
var plugins = []string{"main/ptp", "main/loopback", "ipam/host-local"}

// Build makes the cache complete.
func Build(ctx context.Context, cache string, progress io.Writer) (*Binaries, error) {
	kubernetes, err := moduleVersion(ctx, "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	etcd, err := moduleVersion(ctx, "go.etcd.io/etcd/server/v3")
	if err != nil {
		return nil, err
	}
	b := &Binaries{}
	b.Kubernetes, err = machine.Once(cache, "kubernetes-"+kubernetes+"-etcd-"+etcd, func(tmp string) error {
		fmt.Fprintf(progress, "e2e: build Kubernetes %s and etcd %s (5 to 10 minutes, once)\n", kubernetes, etcd)
		for _, p := range programs {
			if err := buildProgram(ctx, filepath.Join(tmp, p.name), p.pkg, kubernetes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.CNI, err = machine.Once(cache, "cni-"+cniVersion, func(tmp string) error {
		fmt.Fprintf(progress, "e2e: build the network plugins %s\n", cniVersion)
		return goInstall(ctx, tmp, cniModules()...)
	})
	if err != nil {
		return nil, err
	}
	b.Helm, err = machine.Once(cache, "helm-"+helmVersion, func(tmp string) error {
		fmt.Fprintf(progress, "e2e: build helm %s (about 2 minutes, once)\n", helmVersion)
		return goInstall(ctx, tmp, "helm.sh/helm/v3/cmd/helm@"+helmVersion)
	})
	return b, err
}

func moduleVersion(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	cmd.Dir = toolsModule
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("version of %s in %s: %w", module, toolsModule, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// buildProgram says the version, which a program that was not built by Kubernetes'
// own scripts does not know: clients and kubelet compare it.
func buildProgram(ctx context.Context, out, pkg, version string) error {
	minor := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(minor) != 3 {
		return fmt.Errorf("version %q of Kubernetes: want three numbers", version)
	}
	flags := "-s -w"
	for variable, value := range map[string]string{
		"component-base/version.gitVersion": version, "component-base/version.gitMajor": minor[0],
		"component-base/version.gitMinor": minor[1], "client-go/pkg/version.gitVersion": version,
	} {
		flags += " -X k8s.io/" + variable + "=" + value
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-p", "2", "-trimpath", "-ldflags", flags, "-o", out, pkg)
	cmd.Dir = toolsModule
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, lastOf(text))
	}
	return nil
}

func cniModules() []string {
	var out []string
	for _, p := range plugins {
		out = append(out, "github.com/containernetworking/plugins/plugins/"+p+"@"+cniVersion)
	}
	return out
}

func goInstall(ctx context.Context, into string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"install", "-p", "2", "-trimpath", "-ldflags", "-s -w"},
		packages...)...)
	cmd.Dir = into
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+into, "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w: %s", strings.Join(packages, " "), err, lastOf(text))
	}
	return nil
}

// lastOf is the end of a program's output: what went wrong is there.
func lastOf(text []byte) string {
	const room = 4000
	if len(text) > room {
		text = text[len(text)-room:]
	}
	return strings.TrimSpace(string(text))
}
