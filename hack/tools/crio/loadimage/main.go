// Command loadimage gives CRI-O's storage an image from an OCI archive, under the
// name by which containers ask for it: CRI-O itself only pulls from registries.
//
//	loadimage /usr/share/image.tar quietcore.dev/e2e/busybox:1
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/oci/archive"
	"github.com/containers/image/v5/signature"
	imagestorage "github.com/containers/image/v5/storage"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/reexec"
)

func main() {
	if reexec.Init() { // layers are unpacked by a child in a root of its own
		return
	}
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "loadimage: give an archive and a name")
		os.Exit(2)
	}
	if err := load(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "loadimage:", err)
		os.Exit(1)
	}
}

// load writes where CRI-O's configuration in the guest says that images are.
func load(ctx context.Context, file, name string) error {
	store, err := storage.GetStore(storage.StoreOptions{
		GraphRoot: "/var/lib/containers/storage", RunRoot: "/run/containers/storage", GraphDriverName: "vfs",
	})
	if err != nil {
		return fmt.Errorf("open the storage: %w", err)
	}
	from, err := archive.NewReference(file, "")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	to, err := imagestorage.Transport.ParseStoreReference(store, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	trust, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		return err
	}
	defer trust.Destroy()
	_, err = copy.Image(ctx, trust, to, from, nil)
	return err
}
