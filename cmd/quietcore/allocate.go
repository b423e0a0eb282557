package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/paper"
)

func newAllocate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allocate",
		Short: "ask the allocator which CPUs it would give, one case or a stream of them",
		Long: `Reads cases from standard input, one JSON or YAML document or a stream of them, and
prints one JSON line a case, in order. A refused request is a result. "available" is what may
be given (where it is left out every online CPU that the kernel does not isolate), "held" what
others own. "bySocket" makes the alignment Restricted content with one socket, as kubelet's
option align-by-socket does.`,
		Example: `  echo '{"topology":{"grid":{"coresPerL3":8,"threadsPerCore":2}},"available":"0-15","request":3}' ` +
			`| quietcore allocate`,
		Args: cli.NoArgs,
	}
	cli.Output(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return paper.Allocate(cli.StreamsOf(cmd)) }
	return cmd
}
