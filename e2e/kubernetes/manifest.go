package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// writeManifest gives kubelet a static pod, past the API server. Clean takes it away if
// the proof does not.
func (b *bench) writeManifest(ctx context.Context, k *kubelet.Pod) error {
	if k.Namespace == "" {
		k.Namespace = namespace
	}
	text, err := json.Marshal(cluster.PodObject(k))
	if err != nil {
		return err
	}
	b.manifests = append(b.manifests, k.Name)
	return b.node.WriteFile(ctx, manifestFile(k.Name), string(text))
}

func manifestFile(name string) string { return cluster.ManifestDir + "/" + name + ".json" }

// removeManifest returns when the runtime has nothing running of the pod.
func (b *bench) removeManifest(ctx context.Context, name string) error {
	if _, err := b.node.Files(ctx, wire.FileAction{Do: wire.FileRemove, Path: manifestFile(name),
		Optional: true}); err != nil {
		return err
	}
	return cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		running, err := b.runningOf(ctx, name+"-"+cluster.NodeName)
		if err == nil && len(running) > 0 {
			err = fmt.Errorf("static pod %s still runs although its manifest is gone", name)
		}
		return err
	})
}

func (b *bench) removeManifests(ctx context.Context) error {
	var errs []error
	for _, name := range b.manifests {
		errs = append(errs, b.removeManifest(ctx, name))
	}
	b.manifests = nil
	return errors.Join(errs...)
}
