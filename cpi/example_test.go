package cpi_test

import (
	"fmt"

	"github.com/quietcore/quietcore/cpi"
)

// Whether a container may be capped depends on its class, unless its pod says otherwise.
func ExampleContainer_MayBeCapped() {
	for _, c := range []cpi.Container{
		{Namespace: "jobs", Pod: "sort-0", Name: "main", Class: cpi.Batch},
		{Namespace: "shop", Pod: "web-0", Name: "nginx", Class: cpi.LS},
		{Namespace: "shop", Pod: "index-0", Name: "main", Class: cpi.LS, Capping: cpi.CapAllowed},
		{Namespace: "jobs", Pod: "backup-0", Name: "main", Class: cpi.BE, Capping: cpi.NeverCapped},
	} {
		may, why := c.MayBeCapped()
		fmt.Printf("%v: %t %q\n", &c, may, why)
	}
	// Output:
	// jobs/sort-0/main: true ""
	// shop/web-0/nginx: false "of class LS"
	// shop/index-0/main: true ""
	// jobs/backup-0/main: false "exempt"
}
