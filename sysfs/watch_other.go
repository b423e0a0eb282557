//go:build !linux

package sysfs

import (
	"context"
	"errors"
)

// listenCPUEvents exists so that the parts that read copies build anywhere.
func listenCPUEvents(context.Context) (<-chan struct{}, error) {
	return nil, errors.New("listen for CPU events: only Linux has them")
}
