package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

const (
	// evictorUser is its user at the API server, and the name of its role in the chart.
	evictorUser = "quietcore-evictor"
	// evictorRules has the chart's roles of it.
	evictorRules = "hack/chart/testdata/evictions.yaml"
)

// startEvictor runs what evicts the pods that daemons mark, on this host and with the chart's
// rights, unless it runs already; it ends with the control plane.
func (b *bench) startEvictor(ctx context.Context) error {
	rules, err := rulesOf(evictorRules, evictorUser)
	if err != nil {
		return err
	}
	if err := b.bind(ctx, evictorUser, rules); cluster.Refused(err, 409) {
		return nil
	} else if err != nil {
		return err
	}
	program, err := b.buildScheduler(ctx)
	if err != nil {
		return err
	}
	client, err := b.UserKubeconfig(evictorUser)
	if err != nil {
		return err
	}
	return b.Run(program, "evictor", "--kubeconfig="+client, "--namespace=default", "--health=")
}

// rulesOf are the rules of all roles of that name in a file.
func rulesOf(file, name string) (rules []any, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []any
		}
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if role.Metadata.Name == name {
			rules = append(rules, role.Rules...)
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s has no rules of %s", file, name)
	}
	return rules, nil
}

// buildScheduler makes quietcore-scheduler, as its tests are compiled.
func (b *bench) buildScheduler(ctx context.Context) (program string, err error) {
	if program, err = filepath.Abs(filepath.Join(b.options.Cache, "bin", ours)); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/"+ours)
	build.Dir = "scheduler"
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(build.Args, " "), err, out)
	}
	return program, nil
}
