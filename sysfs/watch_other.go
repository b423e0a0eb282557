//go:build !linux

package sysfs

import (
	"context"
	"errors"
)

// listenCPUEvents is defined so that the code that reads copies builds on any system.
func listenCPUEvents(context.Context) (<-chan struct{}, error) {
	return nil, errors.New("listen for CPU events: only Linux has them")
}
