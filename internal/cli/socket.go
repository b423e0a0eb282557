package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// SocketFlag adds the flag --socket.
func SocketFlag(cmd *cobra.Command, socket *string, usual string) {
	*socket = usual
	cmd.Flags().Var((*socketPath)(socket), "socket", "the daemon's control socket")
}

// socketPath is a flag's value that the kernel takes for the path of a socket.
type socketPath string

const maxSocketPath = 107

func (p *socketPath) Set(text string) error {
	if text == "" || len(text) > maxSocketPath {
		return fmt.Errorf("a Unix socket's path has 1 to %d bytes, this has %d", maxSocketPath, len(text))
	}
	*p = socketPath(text)
	return nil
}

func (p *socketPath) String() string { return string(*p) }
func (p *socketPath) Type() string   { return "string" }
